#include "core/base/mask_view.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/field_checks.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr std::int64_t kMaskRank = 4;

absl::StatusOr<BroadcastView> Broadcast(const TensorView& mask,
                                        std::span<const std::int64_t> target,
                                        absl::string_view field) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(mask.shape, field);
  if (!count.ok()) return count.status();
  if (mask.rank() > kMaskRank) {
    return InvalidField(absl::StrCat(field, ".shape"),
                        absl::StrCat("is ", ShapeString(mask.shape), "; expected at most 4 sizes"));
  }
  BroadcastView view{.dtype = mask.dtype, .data = mask.data, .strides = {}};
  const std::int64_t missing = kMaskRank - mask.rank();
  for (std::int64_t i = 0; i < mask.rank(); ++i) {
    const std::int64_t size = mask.shape[i];
    const std::int64_t expected = target[i + missing];
    if (size != 1 && size != expected) {
      return InvalidField(absl::StrCat(field, ".shape[", i, "]"),
                          absl::StrCat("is ", size, "; expected 1 or ", expected,
                                       ", to broadcast to ", ShapeString(target)));
    }
    view.strides[i + missing] = size == 1 ? 0 : mask.strides[i];
  }
  return view;
}

struct Element {
  std::int64_t index;  // in a dense tensor of the shape, which is what errors name
  const std::byte* address;
};

// Finds the first element, in the order of indices, for which `bad` holds.
template <typename Bad>
std::optional<Element> FindElement(const TensorView& mask, Bad bad) {
  const std::int64_t count = mask.num_elements();
  if (count == 0) return std::nullopt;
  const std::int64_t columns = mask.rank() == 0 ? 1 : mask.shape.back();
  const std::int64_t column_stride = mask.rank() == 0 ? 0 : mask.strides.back();
  for (std::int64_t row = 0; row < count / columns; ++row) {
    std::int64_t offset = 0;
    std::int64_t rest = row;
    for (std::int64_t axis = mask.rank() - 2; axis >= 0; --axis) {
      offset += (rest % mask.shape[axis]) * mask.strides[axis];
      rest /= mask.shape[axis];
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::byte* address = mask.at(offset + column * column_stride);
      if (bad(address)) return Element{row * columns + column, address};
    }
  }
  return std::nullopt;
}

bool IsNanOrPositiveInfinity(DType dtype, const std::byte* address) {
  const float value = LoadFloat(dtype, address);
  return std::isnan(value) || (std::isinf(value) && value > 0);
}

}  // namespace

absl::StatusOr<BroadcastView> BroadcastBooleanMask(const TensorView& mask,
                                                   std::span<const std::int64_t> target,
                                                   absl::string_view field) {
  if (mask.dtype != DType::kBool) {
    return InvalidField(absl::StrCat(field, ".dtype"),
                        absl::StrCat("is ", Name(mask.dtype), "; expected BOOL"));
  }
  absl::StatusOr<BroadcastView> view = Broadcast(mask, target, field);
  if (!view.ok()) return view;
  const std::optional<Element> bad = FindElement(
      mask, [](const std::byte* address) { return std::to_integer<unsigned>(*address) > 1; });
  if (bad.has_value()) {
    return InvalidField(
        absl::StrCat(field, ".data[", bad->index, "]"),
        absl::StrCat("is ", std::to_integer<unsigned>(*bad->address), "; expected 0 or 1"));
  }
  return view;
}

absl::StatusOr<BroadcastView> BroadcastAdditiveMask(const TensorView& mask,
                                                    std::span<const std::int64_t> target,
                                                    absl::string_view field) {
  const absl::Status status = CheckFloatDType(field, mask.dtype);
  if (!status.ok()) return status;
  absl::StatusOr<BroadcastView> view = Broadcast(mask, target, field);
  if (!view.ok()) return view;
  const DType dtype = mask.dtype;
  const std::optional<Element> bad = FindElement(
      mask, [dtype](const std::byte* address) { return IsNanOrPositiveInfinity(dtype, address); });
  if (bad.has_value()) {
    return InvalidField(
        absl::StrCat(field, ".data[", bad->index, "]"),
        absl::StrCat("is ", LoadFloat(dtype, bad->address), "; expected a finite number or -inf"));
  }
  return view;
}

}  // namespace attend
