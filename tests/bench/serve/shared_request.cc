#include "tests/bench/serve/shared_request.h"

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "attend/v1/shared_memory.grpc.pb.h"
#include "tests/bench/serve/parts.h"
#include "tests/support/server_process.h"

namespace attend::bench {

namespace {

std::string Register(const std::string& target, const testing::SharedMemoryObject& object) {
  const auto stub = v1::SharedMemoryService::NewStub(testing::NewChannel(target));
  v1::RegisterSharedMemoryRequest request;
  request.set_name(object.name());
  request.set_size_bytes(object.size());
  v1::RegisterSharedMemoryResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->Register(&context, request, &response);
  if (!status.ok()) Die("cannot register shared memory: " + status.error_message());
  return response.handle();
}

v1::AttendResponse Answer(RawClient& client, const grpc::ByteBuffer& request) {
  grpc::ByteBuffer answer = client.AttendAndWait(request);
  v1::AttendResponse response;
  if (!grpc::SerializationTraits<v1::AttendResponse>::Deserialize(&answer, &response).ok()) {
    Die("an answer cannot be read");
  }
  return response;
}

}  // namespace

SharedRequest::SharedRequest(const std::string& target, const v1::AttendRequest& request)
    : object_(2 * request.query().data().size() + request.key().data().size() +
              request.value().data().size()),
      output_bytes_(request.query().data().size()) {
  const std::string handle = Register(target, object_);
  v1::AttendRequest shared = request;
  std::size_t next = 0;
  const auto place = [&handle, &next](v1::SharedMemorySlice& slice, std::size_t size) {
    slice.set_handle(handle);
    slice.set_offset(next);
    slice.set_size_bytes(size);
    next += size;
  };
  for (v1::Tensor* tensor :
       {shared.mutable_query(), shared.mutable_key(), shared.mutable_value()}) {
    const std::string data = tensor->data();
    const auto elements = std::as_bytes(std::span(data));
    object_.Write(next, {elements.begin(), elements.end()});
    place(*tensor->mutable_shared_memory(), data.size());
  }
  output_offset_ = next;
  place(*shared.mutable_output()->mutable_output_target(), output_bytes_);
  bytes_ = ToBuffer(shared.SerializeAsString());
}

void SharedRequest::Check(RawClient& client, const v1::AttendRequest& request) const {
  const std::string expected =
      Answer(client, ToBuffer(request.SerializeAsString())).output().data();
  Answer(client, bytes_);
  const std::vector<std::byte> output = object_.Read(output_offset_, output_bytes_);
  if (expected.size() != output.size() ||
      std::memcmp(expected.data(), output.data(), output.size()) != 0) {
    Die("the output in shared memory is not that in the message");
  }
}

}  // namespace attend::bench
