#include "core/base/suggest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace attend {
namespace {

// Levenshtein's distance: insertions, deletions and replacements from `a` to `b`.
std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(absl::string_view unknown, const std::vector<std::string>& known,
                       absl::string_view prefix) {
  std::size_t best_distance = std::max<std::size_t>(2, unknown.size() / 3) + 1;
  absl::string_view best;
  for (const std::string& name : known) {
    const std::size_t distance = EditDistance(unknown, name);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = name;
  }
  return best.empty() ? "" : absl::StrCat(", did you mean ", prefix, best, "?");
}

}  // namespace attend
