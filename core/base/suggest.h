// "Did you mean ...?" for names that do not exist.
#ifndef ATTEND_CORE_BASE_SUGGEST_H_
#define ATTEND_CORE_BASE_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attend {

// ", did you mean <prefix><name>?" with the known name that is the fewest single-character edits
// away, or nothing where none is near.
std::string DidYouMean(absl::string_view unknown, const std::vector<std::string>& known,
                       absl::string_view prefix = "");

}  // namespace attend

#endif  // ATTEND_CORE_BASE_SUGGEST_H_
