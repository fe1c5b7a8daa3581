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
  // Removes what an earlier server left at `path`; empty: does nothing, now and later.
  explicit ReadyFile(std::string path);
  ~ReadyFile();
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // Readers see all of `text` or no file. Errors: UNAVAILABLE that names the path.
  absl::Status Write(const std::string& text);

  void Remove();

 private:
  const std::string path_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_READY_FILE_H_
