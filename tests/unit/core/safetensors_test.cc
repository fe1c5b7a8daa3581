#include "core/base/safetensors.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string LittleEndian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// A file with this header and data, neither of them checked.
std::string File(const std::string& json, const std::string& data = "") {
  return LittleEndian(json.size()) + json + data;
}

absl::StatusOr<SafetensorsFile> Parse(const std::string& file) {
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  return ParseSafetensors({begin, file.size()});
}

template <typename T>
std::string Raw(std::initializer_list<T> values) {
  std::string raw(values.size() * sizeof(T), '\0');
  std::memcpy(raw.data(), values.begin(), raw.size());
  return raw;
}

// `"name":{"dtype":...,"shape":...,"data_offsets":...}`
std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const auto file = Parse(File("{\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"}," +
                                   Entry("w", "F32", "[1,2]", "[0,8]") + "," +
                                   Entry("b", "I64", "[1]", "[8,16]") + "}   ",
                               Raw<float>({1.5f, -2}) + Raw<std::int64_t>({-7})));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->metadata,
              ElementsAre(std::pair<const std::string, std::string>("empty", ""),
                          std::pair<const std::string, std::string>("format", "pt")));
  ASSERT_THAT(file->tensors, SizeIs(2));
  EXPECT_THAT(file->tensors.at("w").shape, ElementsAre(1, 2));
  EXPECT_THAT(file->tensors.at("w").ToFloats(), ElementsAre(1.5f, -2));
  EXPECT_EQ(file->tensors.at("b").dtype, DType::kInt64);
  EXPECT_EQ(LoadUnaligned<std::int64_t>(file->tensors.at("b").data.data()), -7);
}

TEST(SafetensorsTest, DecodesEscapedNames) {
  const auto file = Parse(File("{" + Entry("a\\u0062\\n", "I8", "[]", "[0,1]") + "}", "\x05"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.count("ab\n"), 1u);
}

TEST(SafetensorsTest, ConvertsTypesThatTensorsDoNotHave) {
  const auto file = Parse(File(
      "{" + Entry("f", "F64", "[2]", "[0,16]") + "," + Entry("i", "I32", "[2]", "[16,24]") + "}",
      Raw<double>({0.1, 1e300}) + Raw<std::int32_t>({-1, 2147483647})));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("f").dtype, DType::kFloat32);
  EXPECT_THAT(file->tensors.at("f").ToFloats(),
              ElementsAre(0.1f, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(file->narrowed, std::set<std::string>({"f"}));
  const Tensor& widened = file->tensors.at("i");
  EXPECT_EQ(widened.dtype, DType::kInt64);
  ASSERT_THAT(widened.data, SizeIs(16));
  EXPECT_EQ(LoadUnaligned<std::int64_t>(widened.data.data()), -1);
  EXPECT_EQ(LoadUnaligned<std::int64_t>(widened.data.data() + 8), 2147483647);
}

TEST(SafetensorsTest, DataOrderMayDifferFromHeaderOrder) {  // C7
  const auto file = Parse(
      File("{" + Entry("a", "I8", "[2]", "[1,3]") + "," + Entry("b", "I8", "[1]", "[0,1]") + "}",
           "xyz"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("a").data.front(), std::byte{'y'});
  EXPECT_EQ(file->tensors.at("b").data.front(), std::byte{'x'});
}

TEST(SafetensorsTest, EmptyTensorsAndScalarsAreLegal) {  // C10
  const auto file = Parse(File("{" + Entry("none", "F32", "[0]", "[0,0]") + "," +
                                   Entry("one", "F32", "[]", "[0,4]") + "," +
                                   Entry("none_after", "F32", "[3,0,2]", "[4,4]") + "}",
                               Raw<float>({3})));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->tensors.at("none").data, IsEmpty());
  EXPECT_THAT(file->tensors.at("none_after").shape, ElementsAre(3, 0, 2));
  EXPECT_THAT(file->tensors.at("one").ToFloats(), ElementsAre(3));
}

TEST(SafetensorsTest, FilesWithoutTensorsAreLegal) {  // C11
  const auto empty = Parse(File("{}"));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(empty->tensors, IsEmpty());
  const auto metadata = Parse(File("{\"__metadata__\":{\"a\":\"b\"}}"));
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_THAT(metadata->tensors, IsEmpty());
  EXPECT_EQ(metadata->metadata.at("a"), "b");
}

TEST(SafetensorsTest, DataStartRightAfterTheHeaderAtAnyAlignment) {  // C13, C14
  for (int padding = 0; padding < 8; ++padding) {
    const std::string json = "{" + Entry("a", "I8", "[1]", "[0,1]") + "," +
                             Entry("b", "F64", "[1]", "[1,9]") + "," +
                             Entry("c", "BF16", "[1]", "[9,11]") + "}" + std::string(padding, ' ');
    const auto file = Parse(File(json, "\x01" + Raw<double>({0.5}) + Raw<std::uint16_t>({0x3f80})));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(file->tensors.at("b").ToFloats(), ElementsAre(0.5f));
    EXPECT_THAT(file->tensors.at("c").ToFloats(), ElementsAre(1.0f));
  }
}

struct MalformedCase {
  const char* name;
  std::string file;
  const char* message;
};

void PrintTo(const MalformedCase& param, std::ostream* out) { *out << param.name; }

class SafetensorsMalformedTest : public ::testing::TestWithParam<MalformedCase> {};

TEST_P(SafetensorsMalformedTest, IsRefusedSayingWhy) {
  const auto file = Parse(GetParam().file);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(GetParam().message));
}

std::vector<MalformedCase> HeaderLengthCases() {  // C1, C2
  return {{"C1LengthNear2To64", LittleEndian(~std::uint64_t{4}) + "{}", "expected at most 2"},
          {"C1LengthIs2To63", LittleEndian(std::uint64_t{1} << 63) + "{}", "expected at most 2"},
          {"C2LengthOneTooLong", LittleEndian(3) + "{}", "expected at most 2"},
          {"C2LengthAbove100MB", LittleEndian(100'000'001) + "{}", "expected at most"},
          {"EmptyFile", "", "expected at least 8"},
          {"SevenBytes", std::string(7, '\0'), "expected at least 8"},
          {"LengthZero", LittleEndian(0), "expected '{'"}};
}

std::vector<MalformedCase> JsonCases() {  // C2, C4, C11
  const std::string a = Entry("a", "I8", "[1]", "[0,1]");
  const std::string deep(100'000, '[');
  return {
      {"C2DeepArrays", File(deep), "expected '{'"},
      {"C2DeepObjects", File("{\"a\":{\"shape\":" + deep + "}}"), "may not hold an array"},
      {"C2NestedObject", File("{\"a\":{\"b\":{\"c\":{}}}}"), "may not hold an object"},
      {"C4SameNameTwice", File("{" + a + "," + a + "}", "x"), "\"a\": the name is given twice"},
      {"C4SameNameEscaped", File("{" + a + "," + Entry("\\u0061", "I8", "[1]", "[0,1]") + "}", "x"),
       "\"a\": the name is given twice"},
      {"C4MetadataTwice", File("{\"__metadata__\":{},\"__metadata__\":{}}"), "given twice"},
      {"C4MetadataKeyTwice", File("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "given twice"},
      {"C4FieldTwice", File("{\"a\":{\"dtype\":\"I8\",\"dtype\":\"I8\"}}"), "given twice"},
      {"C4ShapeTwice", File("{\"a\":{\"shape\":[1],\"shape\":[1]}}"), "given twice"},
      {"C4OffsetsTwice", File("{\"a\":{\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}"),
       "given twice"},
      {"C11NotJson", File("{\"a\":"), "not valid JSON"},
      {"C11TrailingComma", File("{" + a + ",}", "x"), "not valid JSON"},
      {"C11TextAfterObject", File("{} x"), "not valid JSON"},
      {"C11TwoObjects", File("{}{}"), "not valid JSON"},
      {"C11NulPadding", File(std::string("{}\0", 3)), "not valid JSON"},
      {"C11InvalidUtf8", File("{\"\xff\":1}"), "not valid JSON"},
      {"LeadingSpace", File(" {}"), "expected '{'"},
      {"ArrayAtTop", File("[]"), "expected '{'"},
      {"MetadataNotObject", File("{\"__metadata__\":[]}"), "expected an object"},
      {"MetadataNumber", File("{\"__metadata__\":{\"k\":1}}"), "expected a string"},
      {"MetadataObject", File("{\"__metadata__\":{\"k\":{}}}"), "expected a string"},
      {"TensorIsString", File("{\"a\":\"F32\"}"), "\"a\": is a string"},
      {"TensorIsNull", File("{\"a\":null}"), "\"a\": is null"},
      {"UnknownField", File("{\"a\":{\"offset\":1}}"), "\"offset\" is unknown"},
      {"MissingDtype", File("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "x"),
       "expected dtype"},
      {"MissingShape", File("{\"a\":{\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", "x"),
       "expected dtype, shape"},
      {"MissingOffsets", File("{\"a\":{\"dtype\":\"I8\",\"shape\":[1]}}", "x"), "data_offsets"},
      {"DtypeIsNumber", File("{\"a\":{\"dtype\":3}}"), "may not hold a number"}};
}

std::vector<MalformedCase> ShapeCases() {  // C5, C8, C10
  std::string rank65 = "[";
  for (int i = 0; i < 64; ++i) rank65 += "1,";
  return {
      {"C5TooFewBytes", File("{" + Entry("a", "F32", "[1000,1000]", "[0,4]") + "}", "xxxx"),
       "expected 4000000"},
      {"C5TooManyBytes", File("{" + Entry("a", "F32", "[1]", "[0,8]") + "}", "xxxxxxxx"),
       "expected 4"},
      {"C5ProductWraps", File("{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}"),
       "int64"},
      {"C5BytesWrap", File("{" + Entry("a", "F32", "[4611686018427387905]", "[0,4]") + "}", "xxxx"),
       "int64"},
      {"C5ProductWrapsBesideZero",
       File("{" + Entry("a", "F32", "[0,4294967296,4294967296]", "[0,0]") + "}"), "int64"},
      {"C10OneElementNoBytes", File("{" + Entry("a", "F32", "[1]", "[0,0]") + "}"), "expected 4"},
      {"C10ScalarNoBytes", File("{" + Entry("a", "F32", "[]", "[0,0]") + "}"), "expected 4"},
      {"NegativeSize", File("{" + Entry("a", "F32", "[-1]", "[0,4]") + "}", "xxxx"), "negative"},
      {"FractionalSize", File("{" + Entry("a", "F32", "[1.0]", "[0,4]") + "}", "xxxx"), "fraction"},
      {"SizeIs2To63", File("{" + Entry("a", "I8", "[9223372036854775808]", "[0,1]") + "}", "x"),
       "below 2^63"},
      {"SizeAbove2To64", File("{" + Entry("a", "I8", "[18446744073709551616]", "[0,1]") + "}", "x"),
       "fraction"},
      {"SizeIsString", File("{" + Entry("a", "I8", "[\"1\"]", "[0,1]") + "}", "x"), "a string"},
      {"ShapeIsNumber", File("{" + Entry("a", "I8", "1", "[0,1]") + "}", "x"), "a number"},
      {"Rank65", File("{" + Entry("a", "I8", rank65 + "1]", "[0,1]") + "}", "x"), "at most 64"},
      {"C8UnknownDtype", File("{" + Entry("a", "Q4", "[1]", "[0,1]") + "}", "x"),
       "dtype \"Q4\" is not supported"},
      {"C8LowerCaseDtype", File("{" + Entry("a", "f32", "[1]", "[0,4]") + "}", "xxxx"),
       "not supported"},
      {"C8EmptyDtype", File("{" + Entry("a", "", "[1]", "[0,1]") + "}", "x"), "not supported"},
      {"C8UnknownDtypeOutOfRange", File("{" + Entry("a", "Q4", "[1]", "[0,2]") + "}", "x"),
       "do not lie in"}};
}

std::vector<MalformedCase> OffsetCases() {  // C7
  const auto two = [](const char* a, const char* b) {
    return "{" + Entry("a", "I8", "[2]", a) + "," + Entry("b", "I8", "[2]", b) + "}";
  };
  return {
      {"C7Overlap", File(two("[0,2]", "[1,3]"), "xyz"), "overlaps"},
      {"C7SameRange", File(two("[0,2]", "[0,2]"), "xy"), "overlaps"},
      {"C7Hole", File(two("[0,2]", "[3,5]"), "xyzab"), "leaves a hole"},
      {"C7HoleAtStart", File(two("[1,3]", "[3,5]"), "xyzab"), "leaves a hole"},
      {"C7TrailingBytes", File(two("[0,2]", "[2,4]"), "xyzab"), "expected nothing after"},
      {"C7TrailingBytesWithoutTensors", File("{}", "x"), "expected nothing after"},
      {"C7EmptyTensorInsideAnother",
       File("{" + Entry("a", "I8", "[2]", "[0,2]") + "," + Entry("b", "I8", "[0]", "[1,1]") + "}",
            "xy"),
       "overlaps"},
      {"PastTheEnd", File("{" + Entry("a", "I8", "[2]", "[0,2]") + "}", "x"), "do not lie in"},
      {"EndBeforeBegin", File("{" + Entry("a", "I8", "[1]", "[1,0]") + "}", "x"), "do not lie in"},
      {"OffsetsNear2To64",
       File("{" + Entry("a", "I8", "[1]", "[18446744073709551615,18446744073709551615]") + "}",
            "x"),
       "do not lie in"},
      {"NegativeOffset", File("{" + Entry("a", "I8", "[1]", "[-1,0]") + "}", "x"), "negative"},
      {"OneOffset", File("{" + Entry("a", "I8", "[1]", "[0]") + "}", "x"), "two data_offsets"},
      {"ThreeOffsets", File("{" + Entry("a", "I8", "[1]", "[0,1,1]") + "}", "x"), "data_offsets"}};
}

std::string CaseName(const ::testing::TestParamInfo<MalformedCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(HeaderLength, SafetensorsMalformedTest,
                         ::testing::ValuesIn(HeaderLengthCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Json, SafetensorsMalformedTest, ::testing::ValuesIn(JsonCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Shape, SafetensorsMalformedTest, ::testing::ValuesIn(ShapeCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Offsets, SafetensorsMalformedTest, ::testing::ValuesIn(OffsetCases()),
                         CaseName);

TEST(SafetensorsTest, BoundsTheNumberOfTensors) {  // C2
  std::string json = "{";
  for (int i = 0; i <= 1 << 18; ++i) {
    json += Entry(std::to_string(i), "I8", "[0]", "[0,0]") + ",";
  }
  json.back() = '}';
  EXPECT_THAT(std::string(Parse(File(json)).status().message()), HasSubstr("262144 tensors"));
}

TEST(SafetensorsTest, ErrorsQuoteLongNamesInPart) {
  const auto file = Parse(File("{\"" + std::string(100'000, 'n') + "\":1}"));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(file.status().message().size(), 300u);
}

TEST(SafetensorsTest, RefusesEveryTruncationAndEveryExtension) {  // C38
  const std::string file = File("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", "12345678");
  ASSERT_TRUE(Parse(file).ok());
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(Parse(file.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Parse(file + "9").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, SurvivesEveryChangedByte) {  // C38
  const std::string file =
      File("{\"__metadata__\":{\"k\":\"v\"}," + Entry("a", "BF16", "[2]", "[0,4]") + "}", "1234");
  int accepted = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[i] = static_cast<char>(value);
      const auto parsed = Parse(changed);
      if (!parsed.ok()) {
        EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ++accepted;
      for (const auto& [name, tensor] : parsed->tensors) {
        EXPECT_EQ(tensor.data.size(),
                  static_cast<std::size_t>(tensor.num_elements()) * SizeOf(tensor.dtype));
      }
    }
  }
  EXPECT_GT(accepted, 4 * 256);  // at least the data may be anything
}

TEST(SafetensorsTest, RoundTripsEveryDType) {
  SafetensorsFile file;
  file.metadata = {{"op", "Attention"}, {"quote", "a \"b\" \n"}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kBool,
                            DType::kInt8, DType::kInt64}) {
    Tensor tensor = *Tensor::Zeros(dtype, {3});
    for (std::size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = std::byte(i % 2);
    file.tensors[std::string(Name(dtype))] = tensor;
  }
  file.tensors["empty"] = *Tensor::Zeros(DType::kFloat32, {0, 4});
  file.tensors["scalar"] = *Tensor::Zeros(DType::kFloat16, {});

  const auto read = ParseSafetensors(FormatSafetensors(file));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, file.metadata);
  ASSERT_THAT(read->tensors, SizeIs(file.tensors.size()));
  for (const auto& [name, tensor] : file.tensors) {
    EXPECT_EQ(read->tensors.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(read->tensors.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(read->tensors.at(name).data, tensor.data) << name;
  }
}

TEST(SafetensorsTest, WritesEveryTensorAlignedToItsElements) {  // C14
  SafetensorsFile file;
  file.tensors["a"] = *Tensor::Zeros(DType::kInt8, {3});
  file.tensors["b"] = *Tensor::Zeros(DType::kInt64, {1});
  file.tensors["c"] = *Tensor::Zeros(DType::kFloat16, {1});
  const std::vector<std::byte> bytes = FormatSafetensors(file);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(std::to_integer<int>(bytes[0]) % 8, 0);
  EXPECT_THAT(text, HasSubstr("\"data_offsets\":[0,8],\"dtype\":\"I64\""));
  EXPECT_THAT(text, HasSubstr("\"data_offsets\":[8,10],\"dtype\":\"F16\""));
}

TEST(SafetensorsFileTest, RoundTripsAndNamesThePathInErrors) {
  std::string folder = ::testing::TempDir() + "attend_safetensors_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/a.safetensors";
  SafetensorsFile file;
  file.tensors["a"] = *Tensor::Zeros(DType::kInt8, {3});
  ASSERT_TRUE(WriteSafetensors(path, file).ok());
  const auto read = ReadSafetensors(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->tensors, SizeIs(1));

  std::filesystem::resize_file(path, 20);
  const absl::Status malformed = ReadSafetensors(path).status();
  EXPECT_EQ(malformed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(malformed.message()), StartsWith(path));
  const absl::Status missing = ReadSafetensors(folder + "/b").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), StartsWith(folder + "/b"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace attend
