// A folder that lives as long as the object.
#ifndef ATTEND_TESTS_SUPPORT_TEMP_FOLDER_H_
#define ATTEND_TESTS_SUPPORT_TEMP_FOLDER_H_

#include <string>

namespace attend::testing {

class TempFolder {
 public:
  // Below TMPDIR or /tmp, with a short path, since Unix sockets allow 107 characters.
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_TEMP_FOLDER_H_
