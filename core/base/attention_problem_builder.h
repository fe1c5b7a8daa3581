// What AttentionProblem::Create does. For the attention_problem_*.cc files alone.
#ifndef ATTEND_CORE_BASE_ATTENTION_PROBLEM_BUILDER_H_
#define ATTEND_CORE_BASE_ATTENTION_PROBLEM_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/attention_problem.h"
#include "core/base/tensor.h"

namespace attend {

// Checks the arguments in the order that makes the clearest first complaint, and fills the problem.
// Each step may rely on what the steps before it checked and filled.
class AttentionProblemBuilder {
 public:
  // Both arguments must outlive the builder.
  AttentionProblemBuilder(const AttentionArgs& args, const AttentionLimits& limits);

  // Call once: the problem moves out.
  absl::StatusOr<AttentionProblem> Build();

 private:
  // Indices of the axes of query, key and value in a layout. kPacked has no batch axis: -1.
  struct Axes {
    int batch;
    int heads;
    int length;
    int dim;
    int rank;
  };
  static Axes AxesOf(Layout layout);

  bool packed() const { return args_.layout == Layout::kPacked; }

  // attention_problem_tensors.cc: query, key and value, and the items that they hold.
  absl::Status CheckTensors();
  absl::Status CheckTensor(const TensorView& tensor, absl::string_view field,
                           std::int64_t max_dim) const;
  absl::Status CheckHeads();
  absl::Status CheckLengths();
  absl::Status PaddedItems();
  absl::Status CheckPaddedLengths(std::int64_t batch) const;
  absl::Status CheckBatch(const TensorView& tensor, absl::string_view field,
                          std::int64_t batch) const;
  absl::Status PackedItems();
  absl::Status CheckPackedLengths(std::int64_t batch) const;
  absl::Status CheckPackedList(absl::string_view field, const std::vector<std::int64_t>& lengths,
                               std::int64_t tokens) const;
  void AddItem(std::int64_t query_len, std::int64_t kv_len, std::int64_t query_first,
               std::int64_t key_first, std::int64_t value_first);
  // The view of one item: [heads, length, dim] of a tensor in any layout.
  TensorView ItemView(const TensorView& tensor, std::int64_t first, std::int64_t length) const;

  // attention_problem_options.cc: what changes the scores or excludes keys.
  absl::Status CheckScalars();
  absl::Status CheckPositions();
  absl::Status CheckOffsets();
  absl::Status CheckSlopes();
  absl::Status CheckSinks();
  absl::Status CheckMasks();
  absl::Status CheckBlocks();
  absl::Status CheckBlockCount(const std::string& field) const;
  // The shape that masks broadcast to. With packed tokens only the heads may differ.
  Dims MaskTarget(std::int64_t rows, std::int64_t columns) const;

  // attention_problem_builder.cc: what comes out, and how much work it is.
  absl::Status CheckOutput();
  absl::Status CountPairs();

  const AttentionArgs& args_;
  const AttentionLimits& limits_;
  const Axes axes_;
  AttentionProblem problem_;
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_ATTENTION_PROBLEM_BUILDER_H_
