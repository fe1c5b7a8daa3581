// A request and a client for the tests of the client library.
#ifndef ATTEND_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_
#define ATTEND_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "tests/unit/client/fake_server.h"

namespace attend::testing {

// q = (1, 1) against keys (1, 0), (0, 1), (1, 1): weights 0.2483, 0.2483, 0.5035.
struct Step {
  std::vector<float> query = {1, 1};
  std::vector<float> keys = {1, 0, 0, 1, 1, 1};
  AttentionArgs args;

  Step() {
    args.query = FloatTensorView(query, {1, 1, 1, 2});
    args.key = FloatTensorView(keys, {1, 1, 3, 2});
    args.value = args.key;
    args.options.causal = true;
    args.options.alignment = Alignment::kLast;
    args.output.weights = true;
  }
};

inline std::unique_ptr<Client> Connect(const FakeServer& server, ClientOptions options = {}) {
  options.target = server.target();
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_
