#include "client/load/request_mix.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/random/distributions.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend::load {

namespace {

// The numbers repeat after so many: a prime, so that no two rows of a tensor are alike early.
constexpr std::int64_t kPeriod = 1048573;
constexpr std::uint32_t kVariants = 1024;  // different starts of a view
constexpr double kHidden = 1.0 / 8;        // share of a mask's keys

// Elements of the largest tensors that a kind of work can draw, saturating.
struct LargestTensors {
  double query = 0;
  double key = 0;
  double value = 0;
  double mask = 0;
  double bytes = 0;  // of a whole request
};

std::int64_t QueryLength(const Work& work, std::int64_t length) {
  return work.phase == Phase::kDecode ? work.query_len : length;
}

LargestTensors LargestOf(const Work& work) {
  const auto kv_len = static_cast<double>(work.length.high);
  const auto query_len = static_cast<double>(QueryLength(work, work.length.high));
  const auto batch = static_cast<double>(work.batch);
  LargestTensors largest{
      .query = batch * static_cast<double>(work.query_heads * work.head_dim) * query_len,
      .key = batch * static_cast<double>(work.kv_heads * work.head_dim) * kv_len,
      .value = batch * static_cast<double>(work.kv_heads * work.value_dim) * kv_len};
  largest.bytes =
      (largest.query + largest.key + largest.value) * static_cast<double>(SizeOf(work.dtype));
  if (work.mask != MaskKind::kNone) {
    largest.mask = query_len * kv_len;
    const DType dtype = work.mask == MaskKind::kBoolean ? DType::kBool : DType::kFloat32;
    largest.bytes += largest.mask * static_cast<double>(SizeOf(dtype));
  }
  return largest;
}

// The first `count` numbers of a pool.
std::vector<std::byte> MakeNumbers(DType dtype, bool mask, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * SizeOf(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* element = bytes.data() + static_cast<std::size_t>(i) * SizeOf(dtype);
    const bool hidden = mask && absl::Bernoulli(random, kHidden);
    if (dtype == DType::kBool) {
      *element = hidden ? std::byte{0} : std::byte{1};
    } else {
      const float number = absl::Gaussian<float>(random);
      StoreFloat(dtype, element, hidden ? -std::numeric_limits<float>::infinity() : number);
    }
  }
  return bytes;
}

}  // namespace

NumberPool::NumberPool(DType dtype, bool mask, std::int64_t elements, std::uint64_t seed)
    : dtype_(dtype) {
  const std::int64_t count = elements + kVariants;
  bytes_ = MakeNumbers(dtype, mask, std::min(count, kPeriod), seed);
  const std::size_t period = bytes_.size();
  bytes_.resize(static_cast<std::size_t>(count) * SizeOf(dtype));
  for (std::size_t done = period; done < bytes_.size(); done += period) {
    std::memcpy(bytes_.data() + done, bytes_.data(), std::min(period, bytes_.size() - done));
  }
}

TensorView NumberPool::View(std::uint32_t variant, Dims shape) const {
  const std::size_t offset = static_cast<std::size_t>(variant % kVariants) * SizeOf(dtype_);
  return TensorView::Dense(dtype_, std::move(shape), bytes_.data() + offset);
}

RequestMix::RequestMix(std::vector<Work> works, std::uint64_t seed)
    : works_(std::move(works)), random_(seed) {
  std::vector<double> shares;
  std::map<DType, LargestTensors> largest;
  std::map<DType, double> masks;
  for (const Work& work : works_) {
    shares.push_back(work.share);
    const LargestTensors own = LargestOf(work);
    LargestTensors& all = largest[work.dtype];
    all.query = std::max(all.query, own.query);
    all.key = std::max(all.key, own.key);
    all.value = std::max(all.value, own.value);
    if (work.mask == MaskKind::kNone) continue;
    double& mask = masks[work.mask == MaskKind::kBoolean ? DType::kBool : DType::kFloat32];
    mask = std::max(mask, own.mask);
  }
  choose_ = std::discrete_distribution<std::size_t>(shares.begin(), shares.end());
  const auto make = [seed](DType dtype, bool mask, double elements, std::uint64_t number) {
    return NumberPool(dtype, mask, static_cast<std::int64_t>(elements), seed + number);
  };
  for (const auto& [dtype, all] : largest) {
    queries_.emplace(dtype, make(dtype, /*mask=*/false, all.query, 1));
    keys_.emplace(dtype, make(dtype, /*mask=*/false, all.key, 2));
    values_.emplace(dtype, make(dtype, /*mask=*/false, all.value, 3));
  }
  for (const auto& [dtype, elements] : masks) {
    masks_.emplace(dtype, make(dtype, /*mask=*/true, elements, 4));
  }
}

absl::StatusOr<RequestMix> RequestMix::Create(std::vector<Work> works,
                                              std::int64_t max_message_bytes, std::uint64_t seed) {
  for (const Work& work : works) {
    const double bytes = LargestOf(work).bytes;
    if (bytes > static_cast<double>(max_message_bytes)) {
      return InvalidField("--work",
                          absl::StrCat("\"", work.text, "\": its largest request has ", bytes,
                                       " bytes of tensors; expected at most --max-message-bytes, ",
                                       max_message_bytes));
    }
  }
  return RequestMix(std::move(works), seed);
}

Draw RequestMix::Next() {
  Draw draw;
  draw.work = choose_(random_);
  const Work& drawn = works_[draw.work];
  draw.kv_len = drawn.length.Draw(random_);
  draw.query_len = QueryLength(drawn, draw.kv_len);
  draw.variant = absl::Uniform<std::uint32_t>(random_, 0, kVariants);
  return draw;
}

AttentionArgs RequestMix::Args(const Draw& draw) const {
  const Work& drawn = work(draw);
  AttentionArgs args;
  args.query =
      queries_.at(drawn.dtype)
          .View(draw.variant, {drawn.batch, drawn.query_heads, draw.query_len, drawn.head_dim});
  args.key = keys_.at(drawn.dtype)
                 .View(draw.variant, {drawn.batch, drawn.kv_heads, draw.kv_len, drawn.head_dim});
  args.value = values_.at(drawn.dtype)
                   .View(draw.variant, {drawn.batch, drawn.kv_heads, draw.kv_len, drawn.value_dim});
  args.options.causal = drawn.causal;
  if (drawn.phase == Phase::kDecode) args.options.alignment = Alignment::kLast;
  args.output.dtype = drawn.output_dtype;
  if (drawn.mask == MaskKind::kBoolean) {
    args.boolean_mask = masks_.at(DType::kBool).View(draw.variant, {draw.query_len, draw.kv_len});
  } else if (drawn.mask == MaskKind::kAdditive) {
    args.additive_mask =
        masks_.at(DType::kFloat32).View(draw.variant, {draw.query_len, draw.kv_len});
  }
  return args;
}

}  // namespace attend::load
