#include "core/base/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/file_io.h"
#include "nlohmann/json.hpp"

namespace attend {

namespace {

constexpr absl::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxTensors = 1u << 18;
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxQuotedChars = 100;
constexpr std::size_t kHeaderAlignment = 8;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxQuotedChars)), "\"");
}

absl::Status HeaderError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors header: ", what));
}

absl::Status TensorError(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), ": ", what));
}

// What the header says of one tensor, before it is judged.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<Dims> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Receives the header from the JSON parser, which reports each value as it comes: so duplicate
// keys are seen, and nesting is bounded before anything is stored.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Valid once parsing has ended; OK where the header was complete.
  const absl::Status& status() const { return status_; }
  Header TakeHeader() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return Enter(Place::kTop);
    if (place_ != Place::kTop) return Unexpected("an object");
    if (key_ == kMetadataKey) return Enter(Place::kMetadata);
    if (header_.entries.size() == kMaxTensors) {
      return Fail(HeaderError(absl::StrCat("more than ", kMaxTensors, " tensors")));
    }
    header_.entries.emplace_back().name = key_;
    return Enter(Place::kTensor);
  }

  bool end_object() override {
    if (place_ == Place::kTensor && !CheckComplete()) return false;
    return Enter(place_ == Place::kTop ? Place::kStart : Place::kTop);
  }

  bool key(std::string& key) override {
    if (place_ == Place::kTop && !top_keys_.insert(key).second) {
      return Fail(TensorError(key, "the name is given twice"));
    }
    if (place_ == Place::kMetadata && header_.metadata.count(key) > 0) {
      return Fail(HeaderError(absl::StrCat("metadata ", Quoted(key), " is given twice")));
    }
    (place_ == Place::kTop ? key_ : field_) = key;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor) return Unexpected("an array");
    Entry& entry = header_.entries.back();
    if (field_ == "shape" && !entry.shape) {
      entry.shape.emplace();
      return Enter(Place::kShape);
    }
    if (field_ == "data_offsets" && !entry.offsets) {
      entry.offsets.emplace();
      return Enter(Place::kOffsets);
    }
    return Unexpected("an array");
  }

  bool end_array() override { return Enter(Place::kTensor); }

  bool number_unsigned(std::uint64_t value) override {
    if (header_.entries.empty()) return Unexpected("a number");
    Entry& entry = header_.entries.back();
    if (place_ == Place::kShape) {
      if (value > INT64_MAX || entry.shape->size() == kMaxRank) {
        return Fail(TensorError(entry.name, "expected a shape of at most 64 sizes below 2^63"));
      }
      entry.shape->push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsets || entry.offsets->size() == 2) return Unexpected("a number");
    entry.offsets->push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(field_, value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype" || header_.entries.back().dtype) {
      return Unexpected("a string");
    }
    header_.entries.back().dtype = value;
    return true;
  }

  bool number_integer(std::int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { return Unexpected("a fraction"); }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(nlohmann::json::binary_t&) override { return Unexpected("binary"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return Fail(HeaderError(absl::StrCat("not valid JSON at byte ", position)));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool CheckComplete() {
    const Entry& entry = header_.entries.back();
    if (entry.dtype && entry.shape && entry.offsets && entry.offsets->size() == 2) return true;
    return Fail(TensorError(entry.name, "expected dtype, shape and two data_offsets"));
  }

  bool Unexpected(absl::string_view what) {
    switch (place_) {
      case Place::kStart:
        return Fail(HeaderError(absl::StrCat("is ", what, "; expected an object")));
      case Place::kTop:
        return Fail(TensorError(key_, absl::StrCat("is ", what, "; expected an object")));
      case Place::kMetadata:
        return Fail(HeaderError(
            absl::StrCat("metadata ", Quoted(field_), " is ", what, "; expected a string")));
      default:
        return Fail(TensorError(
            key_, absl::StrCat(Quoted(field_), " is unknown, given twice, or may not hold ", what,
                               "; expected dtype, shape and data_offsets")));
    }
  }

  Place place_ = Place::kStart;
  std::string key_;    // the last key of the outermost object
  std::string field_;  // the last key of an inner object
  std::set<std::string> top_keys_;
  Header header_;
  absl::Status status_;
};

// How elements are stored. FLOAT64 and INT32 have no DType; they are converted to `dtype`.
struct StoredType {
  absl::string_view name;
  DType dtype;
  std::size_t size;
};

constexpr std::array<StoredType, 8> kStoredTypes = {{{"F32", DType::kFloat32, 4},
                                                     {"F16", DType::kFloat16, 2},
                                                     {"BF16", DType::kBFloat16, 2},
                                                     {"BOOL", DType::kBool, 1},
                                                     {"I8", DType::kInt8, 1},
                                                     {"I64", DType::kInt64, 8},
                                                     {"F64", DType::kFloat32, 8},
                                                     {"I32", DType::kInt64, 4}}};

const StoredType* FindStoredType(absl::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

// The first of the types that keep elements of `dtype` as they are.
const StoredType& StoredTypeOf(DType dtype) {
  return *std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                       [&](const StoredType& type) { return type.dtype == dtype; });
}

absl::StatusOr<Header> ReadHeader(absl::string_view json) {
  // The parser would allow white space here, the format does not.
  if (json.empty() || json.front() != '{') return HeaderError("expected '{' at its start");
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  if (json.find('\0') != absl::string_view::npos) return HeaderError("not valid JSON: has a NUL");
  HeaderReader reader;
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.status().ok()) return reader.status();
  if (!parsed) return HeaderError("not valid JSON");
  return reader.TakeHeader();
}

absl::Status CheckEntry(const Entry& entry, std::uint64_t data_bytes) {
  const std::uint64_t begin = entry.offsets->front();
  const std::uint64_t end = entry.offsets->back();
  const std::string range = absl::StrCat("data_offsets [", begin, ", ", end, ")");
  if (begin > end || end > data_bytes) {
    return TensorError(
        entry.name, absl::StrCat(range, " do not lie in the file's ", data_bytes, " data bytes"));
  }
  const StoredType* type = FindStoredType(*entry.dtype);
  if (type == nullptr) {
    return TensorError(entry.name,
                       absl::StrCat("dtype ", Quoted(*entry.dtype),
                                    " is not supported; expected F32, F16, BF16, BOOL, I8, I64, "
                                    "F64 or I32"));
  }
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(*entry.shape, "tensor");
  if (!count.ok()) {
    return TensorError(entry.name, absl::StrCat("shape ", ShapeString(*entry.shape),
                                                " has more elements than an int64 can count"));
  }
  const std::uint64_t expected = static_cast<std::uint64_t>(*count) * type->size;
  if (end - begin != expected) {
    return TensorError(entry.name,
                       absl::StrCat(range, " hold ", end - begin, " bytes; expected ", expected,
                                    " for ", type->name, " ", ShapeString(*entry.shape)));
  }
  return absl::OkStatus();
}

// The ranges, in the order of the data, must follow each other without a hole or an overlap.
absl::Status CheckTiling(std::vector<const Entry*> entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return *a->offsets < *b->offsets; });
  std::uint64_t covered = 0;
  for (const Entry* entry : entries) {
    const std::uint64_t begin = entry->offsets->front();
    if (begin != covered) {
      return TensorError(entry->name, absl::StrCat("its data begin at ", begin, ", which ",
                                                   begin < covered ? "overlaps" : "leaves a hole",
                                                   "; expected ", covered));
    }
    covered = entry->offsets->back();
  }
  if (covered == data_bytes) return absl::OkStatus();
  return HeaderError(absl::StrCat("the tensors end at byte ", covered, " of ", data_bytes,
                                  " data bytes; expected nothing after them"));
}

// Converts the elements of FLOAT64 and INT32, which have no DType.
template <typename From, typename To>
std::vector<std::byte> Convert(std::span<const std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(From);
  std::vector<std::byte> out(count * sizeof(To));
  for (std::size_t i = 0; i < count; ++i) {
    const From value = LoadUnaligned<From>(bytes.data() + i * sizeof(From));
    StoreUnaligned(out.data() + i * sizeof(To), static_cast<To>(value));
  }
  return out;
}

// `entry` must have passed CheckEntry.
Tensor MakeTensor(Entry& entry, std::span<const std::byte> data) {
  const StoredType& type = *FindStoredType(*entry.dtype);
  const std::size_t begin = entry.offsets->front();
  const auto bytes = data.subspan(begin, entry.offsets->back() - begin);
  Tensor tensor{type.dtype, *std::move(entry.shape), {}};
  if (type.name == "F64") {
    tensor.data = Convert<double, float>(bytes);
  } else if (type.name == "I32") {
    tensor.data = Convert<std::int32_t, std::int64_t>(bytes);
  } else {
    tensor.data.assign(bytes.begin(), bytes.end());
  }
  return tensor;
}

absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return HeaderError(absl::StrCat("the file has ", bytes.size(), " bytes; expected at least 8"));
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  const std::uint64_t limit = std::min<std::uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header_bytes > limit) {
    return HeaderError(absl::StrCat("its length is ", header_bytes, "; expected at most ", limit));
  }
  const auto json = bytes.subspan(kLengthBytes, header_bytes);
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  absl::StatusOr<Header> header =
      ReadHeader(absl::string_view(reinterpret_cast<const char*>(json.data()), json.size()));
  if (!header.ok()) return header.status();

  std::vector<const Entry*> entries;
  for (const Entry& entry : header->entries) {
    absl::Status status = CheckEntry(entry, data.size());
    if (!status.ok()) return status;
    entries.push_back(&entry);
  }
  absl::Status status = CheckTiling(std::move(entries), data.size());
  if (!status.ok()) return status;

  SafetensorsFile file;
  file.metadata = std::move(header->metadata);
  for (Entry& entry : header->entries) {
    if (*entry.dtype == "F64") file.narrowed.insert(entry.name);
    Tensor tensor = MakeTensor(entry, data);
    file.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return file;
}

}  // namespace

absl::StatusOr<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes) {
  try {
    return Parse(bytes);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("safetensors: no memory for the tensors");
  }
}

std::vector<std::byte> FormatSafetensors(const SafetensorsFile& file) {
  // Wide types first, so that every tensor is aligned to its elements.
  std::vector<const std::pair<const std::string, Tensor>*> order;
  for (const auto& named : file.tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return SizeOf(a->second.dtype) > SizeOf(b->second.dtype);
  });

  nlohmann::json header = nlohmann::json::object();
  if (!file.metadata.empty()) header[std::string(kMetadataKey)] = file.metadata;
  std::size_t end = 0;
  for (const auto* named : order) {
    const Tensor& tensor = named->second;
    const std::size_t begin = std::exchange(end, end + tensor.data.size());
    header[named->first] = {
        {"dtype", std::string(StoredTypeOf(tensor.dtype).name)},
        {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
        {"data_offsets", {begin, end}}};
  }
  std::string json = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  json.resize((json.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  std::vector<std::byte> bytes;
  bytes.reserve(kLengthBytes + json.size() + end);
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<std::byte>(json.size() >> (8 * i)));
  }
  const auto* text = reinterpret_cast<const std::byte*>(json.data());
  bytes.insert(bytes.end(), text, text + json.size());
  for (const auto* named : order) {
    bytes.insert(bytes.end(), named->second.data.begin(), named->second.data.end());
  }
  return bytes;
}

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path) {
  const absl::StatusOr<std::vector<std::byte>> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<SafetensorsFile> file = ParseSafetensors(*bytes);
  if (!file.ok()) return WithPath(path, file.status());
  return file;
}

absl::Status WriteSafetensors(const std::string& path, const SafetensorsFile& file) {
  return WriteFile(path, FormatSafetensors(file));
}

}  // namespace attend
