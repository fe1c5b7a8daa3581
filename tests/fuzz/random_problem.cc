#include "tests/fuzz/random_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

namespace attend::testing {

namespace {

// Of the reference, in multiplications; each pair of query and key counts for some more. Most
// requests are small, so that there can be many; a few fill tiles on both sides.
constexpr std::int64_t kUsualWork = 150'000;
constexpr std::int64_t kMaxWork = 2'000'000;
constexpr std::int64_t kWorkOfPair = 16;

constexpr std::int64_t kMaxDim = 80;
constexpr std::int64_t kFarOffset = std::int64_t{1} << 40;  // the farthest that is allowed

// Statements read bytes one at a time: the order of a call's arguments is the compiler's.
class ProblemMaker {
 public:
  explicit ProblemMaker(ByteSource& bytes) : bytes_(bytes) {}

  Request Make() {
    ChooseSizes();
    FitWork();
    ChooseLayout();
    AddTensors();
    AddScalars();
    AddPositions();
    AddHeadBiases();
    AddBooleanMask();
    AddAdditiveMask();
    AddBlocks();
    ChooseOutputs();
    Poison();
    return std::move(request_);
  }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return bytes_.Pick(values);
  }
  // Of whole numbers, of which some are plain int.
  std::int64_t Number(std::initializer_list<std::int64_t> values) { return bytes_.Pick(values); }
  bool Chance(int percent) { return bytes_.Chance(percent); }
  DType PickDType() { return Pick({DType::kFloat32, DType::kBFloat16, DType::kFloat16}); }

  // --- Sizes ------------------------------------------------------------------------------------

  // Weighted to multiples of 8 and their neighbours.
  std::int64_t Dim() {
    if (Chance(20)) return 1 + bytes_.Byte() % kMaxDim;
    const std::int64_t multiple = 8 * (1 + bytes_.Byte() % (kMaxDim / 8));
    return std::min(multiple + Number({0, -1, 0, 1}), kMaxDim);
  }

  void ChooseSizes() {
    sizes_.dtype = PickDType();
    sizes_.batch = Number({1, 2, 3});
    sizes_.kv_heads = Number({1, 2, 3});
    group_ = Number({1, 2, 3, 5, 8});
    sizes_.query_len = Number({1, 16, 17, 15, 64, 63, 65, 130, 1, 3, 17, 65, 0});
    if (Chance(20)) sizes_.query_len = bytes_.Byte() % 140;
    sizes_.kv_len = Number({64, 63, 65, 1, 511, 512, 513, 700, 65, 5, 513, 700, 0});
    if (Chance(20)) sizes_.kv_len = bytes_.Byte() * 3;
    if (Chance(3)) sizes_.kv_len = 4097;
    sizes_.head_dim = Dim();
    sizes_.value_dim = Dim();
  }

  std::int64_t Work() const {
    const std::int64_t dims = sizes_.head_dim + sizes_.value_dim;
    const std::int64_t keys = sizes_.batch * sizes_.kv_heads * sizes_.kv_len;
    return keys * group_ * sizes_.query_len * (dims + kWorkOfPair) + keys * dims;
  }

  // Halves one size after the other, what makes more than one job of a request less often. The keys
  // are spared: an edge between their tiles takes many of them.
  void FitWork() {
    const std::int64_t most = Chance(4) ? kMaxWork : kUsualWork;
    std::int64_t* const factors[] = {&sizes_.query_len, &sizes_.head_dim, &sizes_.value_dim,
                                     &sizes_.query_len, &sizes_.head_dim, &sizes_.value_dim,
                                     &sizes_.kv_heads,  &group_,          &sizes_.batch};
    for (std::size_t next = bytes_.Byte(); Work() > most; ++next) {
      std::int64_t& factor = *factors[next % std::size(factors)];
      if (factor > 1) factor /= 2;
    }
    sizes_.query_heads = sizes_.kv_heads * group_;
  }

  void ChooseLayout() {
    AttentionArgs& args = request_.args;
    args.layout = Pick({Layout::kBatchHeadsLength, Layout::kBatchHeadsLength,
                        Layout::kBatchLengthHeads, Layout::kPacked});
    if (packed() || Chance(50)) args.query_lengths = Lengths(sizes_.query_len);
    if (packed() || Chance(50)) args.kv_lengths = Lengths(sizes_.kv_len);
  }

  bool packed() const { return request_.args.layout == Layout::kPacked; }

  std::vector<std::int64_t> Lengths(std::int64_t full) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      const std::int64_t shorter = Number({full * 2 / 3, full / 2, full - full / 4, 0});
      lengths.push_back(Number({full, shorter, full, shorter, std::min<std::int64_t>(full, 1)}));
    }
    return lengths;
  }

  // --- Query, key and value ---------------------------------------------------------------------

  void AddTensors() {
    const AttentionArgs& args = request_.args;
    request_.query = Numbers(sizes_.dtype, Shape(sizes_.batch, sizes_.query_heads, sizes_.query_len,
                                                 args.query_lengths, sizes_.head_dim));
    for (const bool is_key : {true, false}) {
      const bool shared = !packed() && Chance(10);
      (is_key ? request_.key : request_.value) = Numbers(
          sizes_.dtype, Shape(shared ? 1 : sizes_.batch, sizes_.kv_heads, sizes_.kv_len,
                              args.kv_lengths, is_key ? sizes_.head_dim : sizes_.value_dim));
    }
  }

  Dims Shape(std::int64_t batch, std::int64_t heads, std::int64_t length,
             const std::vector<std::int64_t>& lengths, std::int64_t dim) const {
    switch (request_.args.layout) {
      case Layout::kBatchHeadsLength:
        return {batch, heads, length, dim};
      case Layout::kBatchLengthHeads:
        return {batch, length, heads, dim};
      case Layout::kPacked:
        break;
    }
    std::int64_t tokens = 0;
    for (const std::int64_t tokens_of_item : lengths) tokens += tokens_of_item;
    return {tokens, heads, dim};
  }

  // Mostly of unit variance; also small and large, of one sign, and such as make ties.
  Tensor Numbers(DType dtype, Dims shape) {
    const float size = Pick({1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1e-3f, 8.0f, 1e3f});
    const int kind = Pick({0, 0, 0, 0, 0, 1, 2, 3});
    std::mt19937 random(bytes_.Byte());
    std::normal_distribution<float> normal;
    std::vector<float> values(ElementsOf(shape));
    for (float& value : values) {
      value = kind == 3 ? 0.7f : normal(random);
      if (kind == 1) value = std::round(value);
      if (kind == 2) value = std::abs(value);
      value *= size;
    }
    return Tensor::FromFloats(dtype, std::move(shape), values);
  }

  static std::size_t ElementsOf(const Dims& shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }

  // --- Options ----------------------------------------------------------------------------------

  void AddScalars() {
    AttentionOptions& options = request_.args.options;
    if (Chance(40)) options.scale = Pick({1.0f, 0.0f, -0.7f, 0.05f, 1e-6f, 1e-31f, 1e31f});
    if (Chance(30)) options.softcap = Pick({20.0f, 1.5f, 50.0f, 1e-3f});
    options.causal = Chance(40);
  }

  void AddPositions() {
    AttentionOptions& options = request_.args.options;
    options.alignment = Pick({Alignment::kFirst, Alignment::kLast, Alignment::kOffsets});
    if (options.alignment == Alignment::kOffsets) {
      const std::int64_t count = Chance(50) ? sizes_.batch : 1;
      for (std::int64_t i = 0; i < count; ++i) options.query_offsets.push_back(Offset());
    }
    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
    if (Chance(25)) options.window_left = Number({0, 1, 9, 63, 64, 65, 200, 511, kAny});
    if (Chance(25)) options.window_right = Number({0, 1, 9, 63, 64, 65, 200, 511, kAny});
  }

  std::int64_t Offset() {
    return Number({0, 7, -9, sizes_.kv_len - 3, sizes_.kv_len, -sizes_.query_len, 1000, -1000,
                   bytes_.Byte() * 3, -kFarOffset, kFarOffset});
  }

  void AddHeadBiases() {
    const std::int64_t heads = sizes_.query_heads;
    if (Chance(30)) {
      const Dims shape = Chance(50) ? Dims{sizes_.batch, heads} : Dims{heads};
      const float sigma = Pick({0.05f, 0.5f, 10.0f});
      request_.alibi_slopes = Normal(DType::kFloat32, shape, bytes_.Byte(), sigma);
    }
    if (!Chance(30)) return;
    request_.sinks = Normal(DType::kFloat32, {heads}, bytes_.Byte());
    const float other = Pick({-kInf, -kInf, 30.0f, -30.0f, 3e38f, -3e38f});
    if (Chance(40)) Store(*request_.sinks, bytes_.Byte() % heads, other);
  }

  // --- Masks ------------------------------------------------------------------------------------

  // A shape that broadcasts to the four sizes: some axes are 1, the first of them left out.
  Dims MaskShape(std::int64_t rows, std::int64_t columns) {
    Dims shape = {sizes_.batch, sizes_.query_heads, rows, columns};
    for (int axis = 0; axis < 4; ++axis) {
      if (Chance(25) || (packed() && axis != 1)) shape[axis] = 1;
    }
    const std::int64_t left_out = bytes_.Byte() % 4;
    auto first = shape.begin();
    while (first - shape.begin() < left_out && *first == 1) ++first;
    return Dims(first, shape.end());
  }

  void AddBooleanMask() {
    if (!Chance(30)) return;
    const double share = Pick({0.97, 0.7, 0.97, 0.9, 0.9, 0.1, 1.0, 0.0});
    const Dims shape = MaskShape(sizes_.query_len, sizes_.kv_len);
    request_.boolean_mask = Bools(shape, bytes_.Byte(), share);
    Tensor& mask = *request_.boolean_mask;
    for (const std::int64_t row : ExcludedRows(mask)) {
      std::fill_n(mask.data.begin() + row * mask.shape.back(), mask.shape.back(), std::byte{0});
    }
  }

  void AddAdditiveMask() {
    if (!Chance(30)) return;
    const DType dtype = PickDType();
    const float sigma = Pick({1.0f, 1.0f, 10.0f, 1e3f});
    const Dims shape = MaskShape(sizes_.query_len, sizes_.kv_len);
    request_.additive_mask = Normal(dtype, shape, bytes_.Byte(), sigma);
    Tensor& mask = *request_.additive_mask;
    const float other = Pick({-kInf, -kInf, Largest(dtype) * -1, 0.0f});
    const std::int64_t step = Pick({5, 2, 3, 70, 600, 7, 1});
    for (std::int64_t i = step - 1; i < mask.num_elements(); i += step) Store(mask, i, other);
    for (const std::int64_t row : ExcludedRows(mask)) {
      for (std::int64_t j = 0; j < mask.shape.back(); ++j) {
        Store(mask, row * mask.shape.back() + j, -kInf);
      }
    }
  }

  // Some rows of a mask, counted over all its axes but the last, to exclude every key.
  std::vector<std::int64_t> ExcludedRows(const Tensor& mask) {
    std::vector<std::int64_t> rows;
    const std::int64_t count = mask.num_elements() / std::max<std::int64_t>(mask.shape.back(), 1);
    if (count < 2) return rows;
    for (int i = Pick({0, 0, 1, 3}); i > 0; --i) rows.push_back(bytes_.Byte() % count);
    return rows;
  }

  void AddBlocks() {
    if (!Chance(25)) return;
    BlockMask& mask = request_.args.options.block_mask.emplace();
    mask.query_block_size = Number({64, 128});
    mask.key_block_size = Number({64, 128, 192, 512});
    const auto blocks = [](std::int64_t length, std::int64_t size) {
      return (length + size - 1) / size;
    };
    const double share = Pick({0.8, 0.6, 0.9, 0.9, 0.3, 1.0, 0.0});
    const Dims shape = MaskShape(blocks(sizes_.query_len, mask.query_block_size),
                                 blocks(sizes_.kv_len, mask.key_block_size));
    request_.blocks = Bools(shape, bytes_.Byte(), share);
  }

  // --- The rest ---------------------------------------------------------------------------------

  void ChooseOutputs() {
    OutputOptions& output = request_.args.output;
    if (Chance(50)) output.dtype = PickDType();
    output.lse = Chance(70);
    output.weights = Chance(35);
    output.scores = Pick({ScoreStage::kNone, ScoreStage::kNone, ScoreStage::kScaled,
                          ScoreStage::kCapped, ScoreStage::kBiased});
  }

  // Puts numbers that are none, or huge, into a tensor, whether or not somebody sees them.
  void Poison() {
    if (!Chance(20)) return;
    Tensor& tensor = *Pick({&request_.value, &request_.value, &request_.key, &request_.query});
    const float poison = Pick({kNaN, kInf, -kInf, Largest(tensor.dtype)});
    const std::int64_t count = tensor.num_elements();
    if (count == 0) return;
    for (int i = Pick({1, 1, 3, 20}); i > 0; --i) {
      const std::int64_t high = bytes_.Byte();
      const std::int64_t anywhere = (high * 256 + bytes_.Byte()) % count;
      Store(tensor, Number({anywhere, anywhere, count - 1, 0}), poison);
    }
  }

  static float Largest(DType dtype) {
    if (dtype == DType::kFloat16) return 65504;
    return dtype == DType::kBFloat16 ? 0x1.fep127f : std::numeric_limits<float>::max();
  }

  static void Store(Tensor& tensor, std::int64_t index, float value) {
    const auto size = static_cast<std::int64_t>(SizeOf(tensor.dtype));
    StoreFloat(tensor.dtype, tensor.data.data() + index * size, value);
  }

  ByteSource& bytes_;
  Sizes sizes_;
  std::int64_t group_ = 1;
  Request request_;
};

// --- In words
// -------------------------------------------------------------------------------------

std::string Words(const std::vector<std::int64_t>& numbers) { return ShapeString(numbers); }

// Dtype, shape, and what the elements are like.
std::string Words(const Tensor& tensor) {
  std::ostringstream text;
  text << Name(tensor.dtype) << ' ' << ShapeString(tensor.shape);
  if (tensor.dtype == DType::kBool) {
    const auto on = std::count(tensor.data.begin(), tensor.data.end(), std::byte{1});
    text << ' ' << on << " true";
    return text.str();
  }
  float low = kInf;
  float high = -kInf;
  int others = 0;
  for (const float value : tensor.ToFloats()) {
    if (!std::isfinite(value)) {
      ++others;
      continue;
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low <= high) text << " in [" << low << ", " << high << "]";
  if (others > 0) text << ", " << others << " not finite";
  return text.str();
}

void DescribeOptions(const AttentionOptions& options, std::ostream& text) {
  static const char* const kAlignments[] = {"FIRST", "LAST", "OFFSETS"};
  if (options.scale) text << "\n  scale " << *options.scale;
  if (options.softcap > 0) text << "\n  softcap " << options.softcap;
  if (options.causal) text << "\n  causal";
  text << "\n  alignment " << kAlignments[static_cast<int>(options.alignment)];
  if (!options.query_offsets.empty()) text << ' ' << Words(options.query_offsets);
  if (options.window_left) text << "\n  window_left " << *options.window_left;
  if (options.window_right) text << "\n  window_right " << *options.window_right;
  if (!options.block_mask) return;
  text << "\n  block sizes " << options.block_mask->query_block_size << " and "
       << options.block_mask->key_block_size;
}

}  // namespace

Request RandomProblem(ByteSource& bytes) { return ProblemMaker(bytes).Make(); }

std::string Describe(const Request& request) {
  static const char* const kLayouts[] = {"[batch, heads, length, dim]",
                                         "[batch, length, heads, dim]", "packed"};
  static const char* const kStages[] = {"none", "scaled", "capped", "biased"};
  const AttentionArgs& args = request.args;
  std::ostringstream text;
  text << "layout " << kLayouts[static_cast<int>(args.layout)];
  text << "\n  query " << Words(request.query) << "\n  key " << Words(request.key) << "\n  value "
       << Words(request.value);
  if (!args.query_lengths.empty()) text << "\n  query_lengths " << Words(args.query_lengths);
  if (!args.kv_lengths.empty()) text << "\n  kv_lengths " << Words(args.kv_lengths);
  DescribeOptions(args.options, text);
  for (const auto& [name, tensor] : {std::pair{"boolean_mask", &request.boolean_mask},
                                     {"additive_mask", &request.additive_mask},
                                     {"alibi_slopes", &request.alibi_slopes},
                                     {"sinks", &request.sinks},
                                     {"blocks", &request.blocks}}) {
    if (tensor->has_value()) text << "\n  " << name << ' ' << Words(**tensor);
  }
  text << "\n  output " << Name(args.output.dtype.value_or(request.query.dtype))
       << (args.output.lse ? ", lse" : "") << (args.output.weights ? ", weights" : "")
       << ", scores " << kStages[static_cast<int>(args.output.scores)];
  return text.str();
}

}  // namespace attend::testing
