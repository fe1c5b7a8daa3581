// Worked examples, small enough to follow by hand.
#ifndef ATTEND_CLIENT_CLI_EXAMPLES_H_
#define ATTEND_CLIENT_CLI_EXAMPLES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/attention_flags.h"

namespace attend::cli {

// Of one head and one item; vectors are rows, [length][dim].
struct Example {
  std::string name;
  std::string title;
  std::vector<std::vector<float>> query;
  std::vector<std::vector<float>> key;
  std::vector<std::vector<float>> value;
  AttentionOptions options;
};

const std::vector<Example>& Examples();

// Puts the example into `input`. NOT_FOUND that lists the names there are.
absl::Status UseExample(const std::string& name, AttentionInput* input, std::string* title);

// Name and title of each, a line each.
std::string ListExamples();

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_EXAMPLES_H_
