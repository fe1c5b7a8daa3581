// Malformed tensors and lengths.
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "tests/integration/malformed_requests.h"
#include "tests/support/requests.h"

namespace attend::testing {

namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

// Sets a shape and gives the tensor the bytes that it asks for, if that is a sane number.
void Reshape(v1::Tensor* tensor, const Dims& shape) {
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  const auto count = CheckedElementCount(shape, "tensor");
  if (count.ok() && *count < 1 << 20) {
    tensor->set_data(std::string(*count * SizeOf(FromProto(tensor->dtype())), '\0'));
  }
}

std::function<void(v1::AttendRequest&)> QueryShape(Dims shape) {
  return [shape](v1::AttendRequest& request) { Reshape(request.mutable_query(), shape); };
}

std::function<void(v1::AttendRequest&)> KeyShape(Dims shape) {
  return [shape](v1::AttendRequest& request) { Reshape(request.mutable_key(), shape); };
}

std::function<void(v1::AttendRequest&)> ValueShape(Dims shape) {
  return [shape](v1::AttendRequest& request) { Reshape(request.mutable_value(), shape); };
}

}  // namespace

std::vector<BadRequestCase> TensorCases() {
  return {
      {"QueryMissing", [](auto& r) { r.clear_query(); }, "query"},
      {"KeyMissing", [](auto& r) { r.clear_key(); }, "key"},
      {"ValueMissing", [](auto& r) { r.clear_value(); }, "value"},
      {"EverythingMissing", [](auto& r) { r.Clear(); }, "query"},
      {"B6ShapeProductOverflows", KeyShape({std::int64_t{1} << 32, std::int64_t{1} << 32, 5, 8}),
       "key.shape"},
      {"B6ByteCountOverflows", QueryShape({1, 1, std::int64_t{1} << 60, 4}), "query.shape"},
      {"B6ByteCountWrapsToZero", QueryShape({1, 1, std::int64_t{1} << 61, 8}), "query.shape"},
      {"B7OverflowBesideAZero", ValueShape({0, kMax, kMax, 6}), "value.shape"},
      {"B7LargestSizes", KeyShape({kMax, kMax, kMax, kMax}), "key.shape"},
      {"B9NegativeSize", QueryShape({-1, 4, 3, 8}), "query.shape[0]", "-1"},
      {"B9NegativeInner", ValueShape({2, 2, 5, -6}), "value.shape[3]", "-6"},
      {"B9MostNegative", KeyShape({2, kMin, 5, 8}), "key.shape[1]"},
      {"B9TwoNegativesMultiplyToPositive", QueryShape({-2, -4, 3, 8}), "query.shape[0]"},
      {"B10RankOne", QueryShape({1}), "query.shape"},
      {"B10RankThree", KeyShape({2, 5, 16}), "key.shape"},
      {"B10Scalar", ValueShape({}), "value.shape"},
      {"RankFive", QueryShape({2, 4, 3, 8, 1}), "query.shape"},
      {"RankFourPacked", [](auto& r) { r.set_layout(v1::LAYOUT_PACKED); }, "query.shape"},
      {"RankOneThousand",
       [](auto& r) {
         for (int i = 0; i < 1000; ++i) r.mutable_query()->add_shape(1);
       },
       "query.shape"},
      {"B12NoBytes", [](auto& r) { r.mutable_query()->clear_data(); }, "query.data", "768"},
      {"B12OneByteShort", [](auto& r) { r.mutable_key()->mutable_data()->pop_back(); }, "key.data"},
      {"B12OneByteOver", [](auto& r) { r.mutable_value()->mutable_data()->push_back(0); },
       "value.data"},
      {"B12BytesOfTheOtherDtype",
       [](auto& r) { r.mutable_query()->set_dtype(v1::DATA_TYPE_FLOAT16); }, "query.data"},
      {"B13HugeLengthFewBytes", KeyShape({2, 2, 1 << 30, 8}), "key.data"},
      {"DtypeUnspecified", [](auto& r) { r.mutable_query()->set_dtype(v1::DATA_TYPE_UNSPECIFIED); },
       "query.dtype"},
      {"DtypeUnknown", [](auto& r) { r.mutable_key()->set_dtype(static_cast<v1::DataType>(99)); },
       "key.dtype", "99"},
      {"DtypeNegative", [](auto& r) { r.mutable_key()->set_dtype(static_cast<v1::DataType>(-1)); },
       "key.dtype"},
      {"DtypeIsNoFloat",
       [](auto& r) {
         *r.mutable_query() = ToProto(*Tensor::Zeros(DType::kInt64, {2, 4, 3, 8}));
       },
       "query.dtype", "INT64"},
      {"B15DtypesDiffer",
       [](auto& r) {
         *r.mutable_key() = RandomTensor({2, 2, 5, 8}, 1, DType::kFloat16);
       },
       "key.dtype", "FLOAT16"},
      {"ValueDtypeDiffers",
       [](auto& r) {
         *r.mutable_value() = RandomTensor({2, 2, 5, 6}, 1, DType::kBFloat16);
       },
       "value.dtype"},
      {"HeadDimZero", QueryShape({2, 4, 3, 0}), "query.shape[3]"},
      {"ValueDimZero", ValueShape({2, 2, 5, 0}), "value.shape[3]"},
      {"HeadDimPastLimit", QueryShape({1, 1, 1, 1025}), "query.shape[3]", "1024"},
      {"ValueDimPastLimit", ValueShape({2, 2, 5, 1025}), "value.shape[3]", "1024"},
      {"QueryHeadsZero", QueryShape({2, 0, 3, 8}), "query.shape[1]"},
      {"KvHeadsZero", KeyShape({2, 0, 5, 8}), "key.shape[1]"},
      {"QueryHeadsPastLimit", QueryShape({1, 1026, 1, 8}), "query.shape[1]"},
      {"HeadsNotAMultiple", QueryShape({2, 3, 3, 8}), "query.shape[1]", "multiple"},
      {"HeadDimsDiffer", KeyShape({2, 2, 5, 7}), "key.shape[3]", "8"},
      {"KvHeadsDiffer", ValueShape({2, 1, 5, 6}), "value.shape[1]", "2"},
      {"KvLengthsDiffer", ValueShape({2, 2, 4, 6}), "value.shape[2]", "5"},
      {"KeyBatchDiffers", KeyShape({3, 2, 5, 8}), "key.shape[0]", "2"},
      {"ValueBatchDiffers", ValueShape({3, 2, 5, 6}), "value.shape[0]", "2"},
      {"BatchPastLimit",
       [](auto& r) {
         r = RandomRequest({.batch = 65537,
                            .query_heads = 1,
                            .kv_heads = 1,
                            .query_len = 1,
                            .kv_len = 1,
                            .head_dim = 1,
                            .value_dim = 1});
       },
       "query.shape[0]", "65536"}};
}

namespace {

void SetLengths(google::protobuf::RepeatedField<std::int64_t>* lengths,
                std::initializer_list<std::int64_t> values) {
  lengths->Assign(values.begin(), values.end());
}

// The valid request in packed form: 6 query tokens and 10 of key and value.
void Pack(v1::AttendRequest& request) {
  request.set_layout(v1::LAYOUT_PACKED);
  Reshape(request.mutable_query(), {6, 4, 8});
  Reshape(request.mutable_key(), {10, 2, 8});
  Reshape(request.mutable_value(), {10, 2, 6});
  SetLengths(request.mutable_query_lengths(), {3, 3});
  SetLengths(request.mutable_kv_lengths(), {5, 5});
}

// `spoil` after packing.
std::function<void(v1::AttendRequest&)> Packed(std::function<void(v1::AttendRequest&)> spoil) {
  return [spoil](v1::AttendRequest& request) {
    Pack(request);
    spoil(request);
  };
}

}  // namespace

std::vector<BadRequestCase> LengthCases() {
  return {
      {"QueryLengthsTooFew", [](auto& r) { SetLengths(r.mutable_query_lengths(), {1}); },
       "query_lengths.size", "2"},
      {"KvLengthsTooMany",
       [](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {1, 1, 1});
       },
       "kv_lengths.size", "2"},
      {"QueryLengthNegative",
       [](auto& r) {
         SetLengths(r.mutable_query_lengths(), {1, -1});
       },
       "query_lengths[1]", "-1"},
      {"QueryLengthPastPadding",
       [](auto& r) {
         SetLengths(r.mutable_query_lengths(), {4, 3});
       },
       "query_lengths[0]", "4"},
      {"KvLengthNegative",
       [](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {kMin, 1});
       },
       "kv_lengths[0]"},
      {"KvLengthPastPadding",
       [](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {5, 6});
       },
       "kv_lengths[1]", "6"},
      {"KvLengthHuge",
       [](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {5, kMax});
       },
       "kv_lengths[1]"},
      {"LengthsPastBatchLimit",
       [](auto& r) {
         for (int i = 0; i < 65537; ++i) r.add_query_lengths(0);
       },
       "query_lengths"},
      {"PackedWithoutLengths", Packed([](auto& r) {
         r.clear_query_lengths();
         r.clear_kv_lengths();
       }),
       "query_lengths"},
      {"PackedWithoutKvLengths", Packed([](auto& r) { r.clear_kv_lengths(); }), "kv_lengths.size"},
      {"PackedSumTooSmall", Packed([](auto& r) { r.set_query_lengths(0, 2); }), "query_lengths",
       "6"},
      {"PackedSumTooLarge", Packed([](auto& r) { r.set_kv_lengths(1, 6); }), "kv_lengths", "10"},
      {"PackedLengthNegative", Packed([](auto& r) {
         SetLengths(r.mutable_query_lengths(), {-1, 7});
       }),
       "query_lengths[0]"},
      {"PackedLengthCountsDiffer", Packed([](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {kMax, kMax, 12});
       }),
       "kv_lengths.size"},
      {"PackedLengthHuge", Packed([](auto& r) {
         SetLengths(r.mutable_kv_lengths(), {kMax, 5});
       }),
       "kv_lengths[0]"},
      {"PackedMaskOverKeys",
       Packed([](auto& r) { *r.mutable_boolean_mask() = BoolTensor({5}, std::vector<int>(5, 1)); }),
       "boolean_mask.shape[0]"},
      {"PackedMaskOverQueries", Packed([](auto& r) {
         *r.mutable_additive_mask() = RandomTensor({3, 1}, 1);
       }),
       "additive_mask.shape[0]"},
      {"PackedMaskOverBatch", Packed([](auto& r) {
         *r.mutable_additive_mask() = RandomTensor({2, 1, 1, 1}, 1);
       }),
       "additive_mask.shape[0]"}};
}

}  // namespace attend::testing
