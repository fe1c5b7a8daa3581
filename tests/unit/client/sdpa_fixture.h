// `attend sdpa` on small files, against the fake server.
#ifndef ATTEND_TESTS_UNIT_CLIENT_SDPA_FIXTURE_H_
#define ATTEND_TESTS_UNIT_CLIENT_SDPA_FIXTURE_H_

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/npy.h"
#include "core/base/safetensors.h"
#include "tests/unit/client/cli_fixture.h"
#include "tests/unit/client/fake_server.h"

namespace attend::cli {

// An address where nobody listens.
inline std::string DeadTarget() { return FakeServer().target(); }

// Query, key and value of [1, 2, 3, 4] in files.
class SdpaTest : public TempFolderTest {
 protected:
  SdpaTest() {
    std::vector<float> values;
    for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(i % 7) * 0.25f);
    tensor_ = Tensor::FromFloats(DType::kFloat32, {1, 2, 3, 4}, values);
    EXPECT_TRUE(WriteNpy(Path("q.npy"), tensor_.view()).ok());
    SafetensorsFile file;
    file.tensors = {{"query", tensor_}, {"key", tensor_}, {"value", tensor_}};
    EXPECT_TRUE(WriteSafetensors(Path("all.safetensors"), file).ok());
  }

  Outcome Sdpa(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--server", server_.target(), "sdpa"});
    return RunCommandLine(flags);
  }
  // With the inputs.
  Outcome SdpaOnInputs(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--input", Path("all.safetensors")});
    return Sdpa(flags);
  }
  v1::AttendRequest LastRequest() const { return server_.service().requests().back(); }

  mutable FakeServer server_;
  Tensor tensor_;
};

}  // namespace attend::cli

#endif  // ATTEND_TESTS_UNIT_CLIENT_SDPA_FIXTURE_H_
