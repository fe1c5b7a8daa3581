#include "server/process/ready_file.h"

#include <cstdio>
#include <fstream>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attend {

ReadyFile::ReadyFile(std::string path) : path_(std::move(path)) {}
ReadyFile::~ReadyFile() { Remove(); }

absl::Status ReadyFile::Write(const std::string& text) {
  if (path_.empty()) return absl::OkStatus();
  const std::string draft = absl::StrCat(path_, ".", getpid());
  std::ofstream file(draft);
  file << text;
  file.close();
  if (!file || std::rename(draft.c_str(), path_.c_str()) != 0) {
    unlink(draft.c_str());
    return absl::UnavailableError(
        absl::StrCat("ready-file: cannot write ", path_, "; name a file in a writable folder"));
  }
  written_ = true;
  return absl::OkStatus();
}

void ReadyFile::RemoveStale() {
  if (!path_.empty()) unlink(path_.c_str());
}

void ReadyFile::Remove() {
  if (written_) unlink(path_.c_str());
  written_ = false;
}

}  // namespace attend
