// What a stranger writes: one library, one include, and one more to merge answers. Exits with 0
// where nobody listens on the target.
#include <iostream>

#include "attend/client.h"
#include "core/base/merge.h"

int main(int argc, char** argv) {
  const auto client = attend::Client::Create({.target = argc > 1 ? argv[1] : "127.0.0.1:50051"});
  if (!client.ok()) return 2;
  const std::vector<float> ones(4, 1.0f);
  attend::AttentionArgs args;
  args.query = args.key = args.value = attend::FloatTensorView(ones, {1, 1, 2, 2});
  const absl::StatusOr<attend::AttendResult> result = (*client)->Attend(args);
  std::cout << result.status() << "\n";
  const attend::AttentionPart part{args.value,
                                   attend::FloatTensorView({ones.data(), 2}, {1, 1, 2})};
  if (!attend::Merge({&part, 1}).ok()) return 3;
  return result.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
}
