// The file that tells others that the server serves, and where.
#ifndef ATTEND_SERVER_PROCESS_READY_FILE_H_
#define ATTEND_SERVER_PROCESS_READY_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attend {

// Exists on disk from Write to the end of the object. Not thread-safe.
class ReadyFile {
 public:
  // `path`: empty if nothing is to be done, now and later. A file that is there stays: it may be
  // that of a living server.
  explicit ReadyFile(std::string path);
  ~ReadyFile();
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // Readers see all of `text` or no file. Errors: UNAVAILABLE that names the path.
  absl::Status Write(const std::string& text);

  // Removes what an earlier server left. To be called once it is known to be gone.
  void RemoveStale();

  // Does nothing unless Write wrote the file.
  void Remove();

 private:
  const std::string path_;
  bool written_ = false;
};

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_READY_FILE_H_
