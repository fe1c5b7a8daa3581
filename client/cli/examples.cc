#include "client/cli/examples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/render.h"

namespace attend::cli {

namespace {

using Rows = std::vector<std::vector<float>>;

Tensor ToTensor(const Rows& rows) {
  std::vector<float> values;
  for (const std::vector<float>& row : rows) values.insert(values.end(), row.begin(), row.end());
  const auto dim = static_cast<std::int64_t>(rows.front().size());
  return Tensor::FromFloats(DType::kFloat32, {1, 1, static_cast<std::int64_t>(rows.size()), dim},
                            values);
}

// The last of three tokens looks back: q = (1, 1) against keys (1, 0), (0, 1) and (1, 1).
Example CausalStep(std::string name, std::string title, std::optional<float> scale) {
  const Rows keys = {{1, 0}, {0, 1}, {1, 1}};
  return {std::move(name),
          std::move(title),
          {{1, 1}},
          keys,
          keys,
          {.scale = scale, .causal = true, .alignment = Alignment::kLast}};
}

Example ThreeKeys() {
  return {"three-keys",
          "three keys of dimension 4 with the products 2.4, 1.8 and 3.1",
          {{1, 0, 0, 0}},
          {{2.4f, 0, 0, 0}, {1.8f, 0, 0, 0}, {3.1f, 0, 0, 0}},
          {{.5f, .8f, .3f, .6f}, {.7f, .4f, .9f, .2f}, {.6f, .5f, .7f, .8f}},
          {}};
}

Example SelfAttention() {
  const Rows tokens = {{1, .5f, .2f, .8f}, {.3f, 1.2f, .6f, .4f}, {.9f, .1f, 1.1f, .7f}};
  return {"self-attention", "the simplest self-attention: Q = K = V = X, scale 1, causal",
          tokens,           tokens,
          tokens,           {.scale = 1.0f, .causal = true}};
}

// Two keys whose products with the query differ by sqrt(dim): one standard deviation of the product
// of two random vectors of that dimension.
Example Gap(std::size_t dim, bool scaled) {
  std::vector<float> query(dim);
  std::vector<float> near(dim);
  query[0] = 1;
  near[0] = std::sqrt(static_cast<float>(dim));
  AttentionOptions options;
  if (!scaled) options.scale = 1.0f;
  return {absl::StrCat("gap-", dim, scaled ? "" : "-unscaled"),
          absl::StrCat("why sqrt(head_dim): a gap of one sigma at head_dim ", dim, ", ",
                       scaled ? "scaled" : "unscaled"),
          {query},
          {near, std::vector<float>(dim)},
          {{1, 0}, {0, 1}},
          options};
}

}  // namespace

const std::vector<Example>& Examples() {
  static const auto* const examples = new std::vector<Example>{
      CausalStep("causal-step", "one causal step, head_dim 2", std::nullopt),
      CausalStep("causal-step-unscaled", "the same step with scale 1", 1.0f),
      ThreeKeys(),
      SelfAttention(),
      Gap(4, true),
      Gap(4, false),
      Gap(64, true),
      Gap(64, false),
      Gap(1024, true),
      Gap(1024, false)};
  return *examples;
}

absl::Status UseExample(const std::string& name, AttentionInput* input, std::string* title) {
  const std::vector<Example>& examples = Examples();
  const auto example = std::find_if(examples.begin(), examples.end(),
                                    [&](const Example& entry) { return entry.name == name; });
  if (example == examples.end()) {
    const auto append_name = [](std::string* out, const Example& entry) {
      absl::StrAppend(out, entry.name);
    };
    return absl::NotFoundError(absl::StrCat("no example is called ", name, "; there are: ",
                                            absl::StrJoin(examples, ", ", append_name)));
  }
  input->args.query = input->Keep(ToTensor(example->query));
  input->args.key = input->Keep(ToTensor(example->key));
  input->args.value = input->Keep(ToTensor(example->value));
  input->args.options = example->options;
  *title = absl::StrCat(example->name, ": ", example->title);
  return absl::OkStatus();
}

std::string ListExamples() {
  Table table({"name", "what it shows"});
  for (const Example& example : Examples()) table.AddRow({example.name, example.title});
  return table.ToString();
}

}  // namespace attend::cli
