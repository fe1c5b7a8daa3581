#include "tests/support/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace attend::testing {

TempFolder::TempFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "attend-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;  // what is left behind harms no later test
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace attend::testing
