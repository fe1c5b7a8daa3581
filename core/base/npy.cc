#include "core/base/npy.h"

#include <new>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/file_io.h"

namespace attend {

namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kHeaderAlignment = 64;
// NumPy itself stops at 64.
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxQuotedChars = 100;

absl::Status HeaderError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(".npy header: ", what));
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxQuotedChars)), "'");
}

// What the header says, before it is judged.
struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<Dims> shape;
};

// Reads the header's text: a Python dict literal with the keys 'descr' (a string),
// 'fortran_order' (True or False) and 'shape' (a tuple of integers), in any order.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : rest_(text) {}

  absl::StatusOr<Header> Parse() {
    if (!Consume("{")) return HeaderError("expected '{' at its start");
    while (!Consume("}")) {
      absl::Status status = ParseEntry();
      if (!status.ok()) return status;
      if (!Consume(",") && !Peek("}")) return HeaderError("expected ',' or '}' after a value");
    }
    SkipSpace();
    if (!rest_.empty()) return HeaderError("expected nothing after '}'");
    if (!header_.descr || !header_.fortran_order || !header_.shape) {
      return HeaderError("expected the keys 'descr', 'fortran_order' and 'shape'");
    }
    return header_;
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && absl::ascii_isspace(static_cast<unsigned char>(rest_.front()))) {
      rest_.remove_prefix(1);
    }
  }

  bool Peek(absl::string_view token) {
    SkipSpace();
    return rest_.substr(0, token.size()) == token;
  }

  bool Consume(absl::string_view token) {
    if (!Peek(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  absl::Status ParseEntry() {
    const std::optional<std::string> key = ParseString();
    if (!key) return HeaderError("expected a quoted key");
    if (!Consume(":")) return HeaderError("expected ':' after a key");
    if (*key == "descr" && !header_.descr) {
      header_.descr = ParseString();
      if (header_.descr) return absl::OkStatus();
      return HeaderError("expected 'descr' to be a string (structured types are not supported)");
    }
    if (*key == "fortran_order" && !header_.fortran_order) return ParseFortranOrder();
    if (*key == "shape" && !header_.shape) return ParseShape();
    return HeaderError(absl::StrCat("key ", Quoted(*key), " is unknown or given twice"));
  }

  // A quoted string; escapes, which no header needs, are not understood.
  std::optional<std::string> ParseString() {
    SkipSpace();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == absl::string_view::npos) return std::nullopt;
    std::string value(rest_.substr(1, end - 1));
    if (value.find('\\') != std::string::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return value;
  }

  absl::Status ParseFortranOrder() {
    if (Consume("True")) {
      header_.fortran_order = true;
    } else if (Consume("False")) {
      header_.fortran_order = false;
    } else {
      return HeaderError("expected 'fortran_order' to be True or False");
    }
    return absl::OkStatus();
  }

  absl::Status ParseShape() {
    if (!Consume("(")) return HeaderError("expected 'shape' to be a tuple");
    Dims shape;
    while (!Consume(")")) {
      SkipSpace();
      std::size_t digits = 0;
      while (digits < rest_.size() &&
             absl::ascii_isdigit(static_cast<unsigned char>(rest_[digits])))
        ++digits;
      std::int64_t size = 0;
      if (!absl::SimpleAtoi(rest_.substr(0, digits), &size)) {
        return HeaderError("expected sizes of 'shape' to be integers from 0 to 2^63 - 1");
      }
      rest_.remove_prefix(digits);
      shape.push_back(size);
      if (shape.size() > kMaxRank) return HeaderError("expected at most 64 sizes in 'shape'");
      if (!Consume(",") && !Peek(")")) return HeaderError("expected ',' or ')' in 'shape'");
    }
    header_.shape = std::move(shape);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  Header header_;
};

// How elements are stored; FLOAT64 is the one type that a file may have and a Tensor may not.
struct StoredType {
  DType dtype = DType::kFloat32;
  bool is_float64 = false;

  std::size_t size() const { return is_float64 ? sizeof(double) : SizeOf(dtype); }
};

absl::StatusOr<StoredType> ParseDescr(absl::string_view descr) {
  if (descr == "<f4") return StoredType{DType::kFloat32};
  if (descr == "<f8") return StoredType{DType::kFloat32, true};
  if (descr == "<f2") return StoredType{DType::kFloat16};
  if (descr == "<V2" || descr == "|V2") return StoredType{DType::kBFloat16};
  if (descr == "|b1" || descr == "?") return StoredType{DType::kBool};
  if (descr == "|i1") return StoredType{DType::kInt8};
  if (descr == "<i8") return StoredType{DType::kInt64};
  return HeaderError(absl::StrCat("dtype ", Quoted(descr),
                                  " is not supported; expected <f4, <f2, <f8, |b1, |i1, <i8, or "
                                  "<V2 for bfloat16"));
}

struct FileParts {
  absl::string_view header;
  std::size_t data_begin = 0;
};

// Finds the header in the file.
absl::StatusOr<FileParts> FindHeader(absl::string_view file) {
  constexpr std::size_t kVersionEnd = 8;
  if (file.substr(0, kMagic.size()) != kMagic || file.size() < kVersionEnd) {
    return absl::InvalidArgumentError("not a .npy file: it does not begin with \\x93NUMPY");
  }
  const int major = static_cast<unsigned char>(file[6]);
  if (major < 1 || major > 3) {
    return HeaderError(absl::StrCat("format version ", major, "; expected 1, 2 or 3"));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = kVersionEnd + length_bytes;
  if (file.size() < begin) return HeaderError("the file ends within it");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::size_t{static_cast<unsigned char>(file[kVersionEnd + i])} << (8 * i);
  }
  if (length > file.size() - begin) return HeaderError("the file ends within it");
  return FileParts{file.substr(begin, length), begin + length};
}

absl::StatusOr<Tensor> MakeTensor(StoredType type, Dims shape, std::span<const std::byte> data) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, "npy");
  if (!count.ok()) return count.status();
  const std::size_t expected = static_cast<std::size_t>(*count) * type.size();
  if (data.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(".npy data: ", data.size(), " bytes; expected ",
                                                   expected, " for shape ", ShapeString(shape)));
  }
  Tensor tensor{type.dtype, std::move(shape), {}};
  if (!type.is_float64) {
    tensor.data.assign(data.begin(), data.end());
    return tensor;
  }
  tensor.data.resize(data.size() / 2);
  for (std::int64_t i = 0; i < *count; ++i) {
    const double value = LoadUnaligned<double>(data.data() + i * 8);
    StoreUnaligned(tensor.data.data() + i * 4, static_cast<float>(value));
  }
  return tensor;
}

absl::string_view Descr(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "<f4";
    case DType::kBFloat16:
      return "<V2";
    case DType::kFloat16:
      return "<f2";
    case DType::kBool:
      return "|b1";
    case DType::kInt8:
      return "|i1";
    case DType::kInt64:
      return "<i8";
  }
  return "";
}

// Appends the view's elements in row-major order.
void AppendElements(const TensorView& tensor, std::vector<std::byte>& out) {
  const std::size_t size = SizeOf(tensor.dtype);
  const std::int64_t count = tensor.num_elements();
  out.reserve(out.size() + static_cast<std::size_t>(count) * size);
  Dims index(tensor.shape.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* element = tensor.at(offset);
    out.insert(out.end(), element, element + size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      offset -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes, bool* narrowed) {
  const absl::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const absl::StatusOr<FileParts> parts = FindHeader(file);
  if (!parts.ok()) return parts.status();
  absl::StatusOr<Header> header = HeaderParser(parts->header).Parse();
  if (!header.ok()) return header.status();
  const absl::StatusOr<StoredType> type = ParseDescr(*header->descr);
  if (!type.ok()) return type.status();
  if (narrowed != nullptr) *narrowed = type->is_float64;
  if (*header->fortran_order) {
    return HeaderError("Fortran order is not supported; save numpy.ascontiguousarray(array)");
  }
  try {
    return MakeTensor(*type, *std::move(header->shape), bytes.subspan(parts->data_begin));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(".npy data: no memory for it");
  }
}

std::vector<std::byte> FormatNpy(const TensorView& tensor) {
  std::string shape = absl::StrCat("(", absl::StrJoin(tensor.shape, ", "));
  absl::StrAppend(&shape, tensor.shape.size() == 1 ? ",)" : ")");
  std::string header = absl::StrCat("{'descr': '", Descr(tensor.dtype),
                                    "', 'fortran_order': False, 'shape': ", shape, ", }");
  const std::size_t prefix = kMagic.size() + 4;  // version and length
  const std::size_t unpadded = prefix + header.size() + 1;
  const std::size_t padded =
      (unpadded + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment;
  header.append(padded - unpadded, ' ').push_back('\n');

  std::string start(kMagic);
  start.append({'\x01', '\x00', static_cast<char>(header.size() & 0xff),
                static_cast<char>(header.size() >> 8)});
  start.append(header);
  const auto* begin = reinterpret_cast<const std::byte*>(start.data());
  std::vector<std::byte> bytes(begin, begin + start.size());
  AppendElements(tensor, bytes);
  return bytes;
}

absl::StatusOr<Tensor> ReadNpy(const std::string& path, bool* narrowed) {
  const absl::StatusOr<std::vector<std::byte>> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Tensor> tensor = ParseNpy(*bytes, narrowed);
  if (!tensor.ok()) return WithPath(path, tensor.status());
  return tensor;
}

absl::Status WriteNpy(const std::string& path, const TensorView& tensor) {
  return WriteFile(path, FormatNpy(tensor));
}

}  // namespace attend
