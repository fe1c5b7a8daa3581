#include "core/base/npy.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// A version 1 file with this header text and data, neither of them checked.
std::string File(const std::string& header, const std::string& data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file.push_back(static_cast<char>(header.size() & 0xff));
  file.push_back(static_cast<char>(header.size() >> 8));
  return file + header + data;
}

std::string HeaderOf(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

template <typename T>
std::string Raw(std::initializer_list<T> values) {
  std::string raw(values.size() * sizeof(T), '\0');
  std::memcpy(raw.data(), values.begin(), raw.size());
  return raw;
}

absl::StatusOr<Tensor> Parse(const std::string& file) { return ParseNpy(Bytes(file)); }

TEST(NpyTest, ReadsWhatNumPyWrites) {
  // numpy.save of numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.float32), byte for byte.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(117 - header.size(), ' ').push_back('\n');
  const auto tensor = Parse(File(header, Raw<float>({1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype, DType::kFloat32);
  EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  EXPECT_THAT(tensor->ToFloats(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(NpyTest, WritesTheBytesThatNumPyWrites) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::FromFloats(DType::kFloat32, {2, 3}, values);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(117 - header.size(), ' ').push_back('\n');
  EXPECT_EQ(FormatNpy(tensor.view()), Bytes(File(header, Raw<float>({1, 2, 3, 4, 5, 6}))));
}

struct DescrCase {
  const char* descr;
  DType dtype;
  std::size_t stored_size;
};

class NpyDescrTest : public ::testing::TestWithParam<DescrCase> {};

TEST_P(NpyDescrTest, IsAccepted) {
  const DescrCase& param = GetParam();
  const std::string data(2 * param.stored_size, '\0');
  const auto tensor = Parse(File(HeaderOf(param.descr, "(2,)"), data));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype, param.dtype);
  EXPECT_THAT(tensor->shape, ElementsAre(2));
  EXPECT_EQ(tensor->data.size(), 2 * SizeOf(param.dtype));
}

INSTANTIATE_TEST_SUITE_P(
    All, NpyDescrTest,
    ::testing::Values(DescrCase{"<f4", DType::kFloat32, 4}, DescrCase{"<f8", DType::kFloat32, 8},
                      DescrCase{"<f2", DType::kFloat16, 2}, DescrCase{"<V2", DType::kBFloat16, 2},
                      DescrCase{"|V2", DType::kBFloat16, 2}, DescrCase{"|b1", DType::kBool, 1},
                      DescrCase{"?", DType::kBool, 1}, DescrCase{"|i1", DType::kInt8, 1},
                      DescrCase{"<i8", DType::kInt64, 8}));

TEST(NpyTest, NarrowsFloat64ToTheNearestFloat32) {
  const double tie = 1 + 0x1p-24;  // halfway; the even neighbour is 1
  const auto tensor = Parse(File(HeaderOf("<f8", "(4,)"), Raw<double>({0.1, tie, -2.5, 1e300})));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->ToFloats(),
              ElementsAre(0.1f, 1.0f, -2.5f, std::numeric_limits<float>::infinity()));
}

TEST(NpyTest, TellsWhetherItNarrowed) {
  for (const bool wide : {true, false}) {
    const std::string data = wide ? Raw<double>({0.1}) : Raw<float>({0.1f});
    bool narrowed = !wide;
    EXPECT_TRUE(
        ParseNpy(Bytes(File(HeaderOf(wide ? "<f8" : "<f4", "(1,)"), data)), &narrowed).ok());
    EXPECT_EQ(narrowed, wide);
  }
}

TEST(NpyTest, RoundTripsEveryDTypeAndRank) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kBool,
                            DType::kInt8, DType::kInt64}) {
    for (const Dims& shape : {Dims{}, Dims{3}, Dims{0}, Dims{2, 0, 3}, Dims{2, 3, 1, 2, 2}}) {
      Tensor tensor = *Tensor::Zeros(dtype, shape);
      for (std::size_t i = 0; i < tensor.data.size(); ++i) {
        tensor.data[i] = static_cast<std::byte>(dtype == DType::kBool ? i % 2 : i * 37);
      }
      const std::vector<std::byte> bytes = FormatNpy(tensor.view());
      EXPECT_EQ((bytes.size() - tensor.data.size()) % 64, 0u);
      const auto read = ParseNpy(bytes);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->dtype, dtype);
      EXPECT_EQ(read->shape, shape);
      EXPECT_EQ(read->data, tensor.data);
    }
  }
}

TEST(NpyTest, WritesStridedViewsInRowMajorOrder) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::FromFloats(DType::kFloat32, {2, 3}, values);
  TensorView transposed = tensor.view();
  transposed.shape = {3, 2};
  transposed.strides = {1, 3};
  const auto read = ParseNpy(FormatNpy(transposed));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->shape, ElementsAre(3, 2));
  EXPECT_THAT(read->ToFloats(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(NpyTest, ReadsKeysInAnyOrderAndEitherQuote) {
  const std::string header = R"({"shape":(1,2),"fortran_order":False,"descr":"<f4"})";
  const auto tensor = Parse(File(header, Raw<float>({7, 8})));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->shape, ElementsAre(1, 2));
}

TEST(NpyTest, ReadsVersions2And3WithTheirFourByteLength) {
  const std::string header = HeaderOf("<f4", "()");
  for (const char version : {'\x02', '\x03'}) {
    std::string file("\x93NUMPY", 6);
    file += {version, '\0', static_cast<char>(header.size()), '\0', '\0', '\0'};
    const auto tensor = Parse(file + header + Raw<float>({5}));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->shape, ElementsAre());
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(5));
  }
}

TEST(NpyTest, ReadsElementsAtAnyAlignment) {  // C14
  std::vector<std::byte> bytes = Bytes(File(HeaderOf("<f8", "(1,)") + " ", Raw<double>({2})));
  bytes.insert(bytes.begin(), std::byte{0});
  const auto tensor = ParseNpy(std::span(bytes).subspan(1));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->ToFloats(), ElementsAre(2));
}

struct MalformedCase {
  const char* name;
  std::string file;
  const char* message;
};

void PrintTo(const MalformedCase& param, std::ostream* out) { *out << param.name; }

class NpyMalformedTest : public ::testing::TestWithParam<MalformedCase> {};

TEST_P(NpyMalformedTest, IsRefusedSayingWhy) {
  const auto tensor = Parse(GetParam().file);
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(GetParam().message));
}

std::vector<MalformedCase> MalformedCases() {
  const std::string f4 = "'descr': '<f4', ";
  const std::string order = "'fortran_order': False, ";
  const std::string scalar = "'shape': ()";
  const std::string one = Raw<float>({1});
  std::vector<MalformedCase> cases = {
      {"Empty", "", "not a .npy file"},
      {"WrongMagic", "\x93NUMPZ\x01" + std::string(20, '\0'), "not a .npy file"},
      {"MagicAlone", "\x93NUMPY", "not a .npy file"},
      {"Version0", std::string("\x93NUMPY\x00\x00\x00\x00", 10), "format version 0"},
      {"Version4", std::string("\x93NUMPY\x04\x00\x00\x00", 10), "format version 4"},
      {"EndsInLength", std::string("\x93NUMPY\x01\x00\x10", 9), "ends within"},
      {"HeaderLongerThanFile", std::string("\x93NUMPY\x01\x00\xff\xff{}", 12), "ends within"},
      {"HugeVersion2Length", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "ends within"},
      {"NoDict", File("descr", ""), "expected '{'"},
      {"EmptyHeader", File("", ""), "expected '{'"},
      {"EmptyDict", File("{}", ""), "expected the keys"},
      {"MissingShape", File("{" + f4 + order + "}", one), "expected the keys"},
      {"DuplicateKey", File("{" + f4 + f4 + order + scalar + "}", one), "given twice"},
      {"UnknownKey", File("{'x': 1, " + f4 + order + scalar + "}", one), "unknown"},
      {"UnquotedKey", File("{descr: '<f4'}", one), "quoted key"},
      {"UnendedString", File("{'descr: <f4}", one), "quoted key"},
      {"NoColon", File("{'descr' '<f4'}", one), "':'"},
      {"NoComma", File("{'descr': '<f4' 'shape': ()}", one), "','"},
      {"TextAfterDict", File("{" + f4 + order + scalar + "} x", one), "nothing after"},
      {"Structured", File("{'descr': [('a', '<f4')], " + order + scalar + "}", one), "structured"},
      {"OrderIsNumber", File("{" + f4 + "'fortran_order': 0, " + scalar + "}", one),
       "True or False"},
      {"FortranOrder", File("{" + f4 + "'fortran_order': True, " + scalar + "}", one), "Fortran"},
      {"ShapeIsList", File("{" + f4 + order + "'shape': [1]}", one), "tuple"},
      {"NegativeSize", File(HeaderOf("<f4", "(-1,)"), one), "integers"},
      {"FractionalSize", File(HeaderOf("<f4", "(1.5,)"), one), "','"},
      {"SizeAboveInt64", File(HeaderOf("<f4", "(9223372036854775808,)"), one), "integers"},
      {"ProductOverflows", File(HeaderOf("<f4", "(4294967296, 4294967296)"), one), "fits an int64"},
      {"ProductOverflowsBesideZero", File(HeaderOf("<f4", "(0, 4294967296, 4294967296)"), ""),
       "fits an int64"},
      {"TooFewBytes", File(HeaderOf("<f4", "(2,)"), one), "4 bytes; expected 8"},
      {"TooManyBytes", File(HeaderOf("<f4", "(1,)"), one + "x"), "5 bytes; expected 4"},
      {"NoBytesForScalar", File(HeaderOf("<f4", "()"), ""), "0 bytes; expected 4"},
      {"Float64ByteCount", File(HeaderOf("<f8", "(1,)"), one), "4 bytes; expected 8"}};
  for (const char* descr : {">f4", "<f16", "<c8", "|O", "|S4", "<U1", "<i4", "", "<f4 "}) {
    cases.push_back({"Dtype", File(HeaderOf(descr, "()"), one), "is not supported"});
  }
  std::string rank65 = "(";
  for (int i = 0; i < 65; ++i) rank65 += "1,";
  cases.push_back({"Rank65", File(HeaderOf("<f4", rank65 + ")"), one), "at most 64"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, NpyMalformedTest, ::testing::ValuesIn(MalformedCases()));

TEST(NpyTest, RefusesEveryTruncation) {
  const float values[] = {1, 2, 3};
  const std::vector<std::byte> bytes =
      FormatNpy(Tensor::FromFloats(DType::kFloat32, {3}, values).view());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseNpy(std::span(bytes).first(size)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
}

class NpyFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "attend_npy_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(NpyFileTest, RoundTrips) {
  const float values[] = {1.5f, -2};
  const std::string path = folder_ + "/a.npy";
  ASSERT_TRUE(WriteNpy(path, Tensor::FromFloats(DType::kBFloat16, {1, 2}, values).view()).ok());
  const auto tensor = ReadNpy(path);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype, DType::kBFloat16);
  EXPECT_THAT(tensor->ToFloats(), ElementsAre(1.5f, -2));
}

TEST_F(NpyFileTest, ErrorsBeginWithThePath) {
  const std::string missing = folder_ + "/missing.npy";
  absl::Status status = ReadNpy(missing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith(missing));

  status = ReadNpy(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith(folder_));

  const std::string elsewhere = folder_ + "/no/such/folder.npy";
  status = WriteNpy(elsewhere, Tensor::FromFloats(DType::kFloat32, {0}, {}).view());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith(elsewhere));
}

TEST_F(NpyFileTest, NamesThePathOfAMalformedFile) {
  const std::string path = folder_ + "/not_npy";
  FILE* file = fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(fputs("hello", file), 1);
  ASSERT_EQ(fclose(file), 0);
  EXPECT_THAT(std::string(ReadNpy(path).status().message()), StartsWith(path + ": not a .npy"));
}

TEST_F(NpyFileTest, DoesNotBlockOnAFifo) {  // C20
  const std::string path = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadNpy(path).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace attend
