#include "server/rpc/server_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/attention/attention.h"

namespace attend {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;

TEST(ServerInfoTest, TellsWhatTheServerIs) {
  const v1::ServerInfo info =
      MakeServerInfo({.version = "1.2.3", .server_name = "here", .compute_threads = 7});
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.server(), "here");
  EXPECT_EQ(info.cpu_target(), CpuTarget());
  EXPECT_EQ(info.compute_threads(), 7);
  EXPECT_THAT(info.dtypes(),
              ElementsAre(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT16));
}

// Every field of the options is computed.
TEST(ServerInfoTest, OffersEveryFieldOfTheOptions) {
  const v1::ServerInfo info = MakeServerInfo({});
  const google::protobuf::Descriptor* options = v1::AttentionOptions::descriptor();
  for (int i = 0; i < options->field_count(); ++i) {
    EXPECT_THAT(info.options(), Contains(std::string(options->field(i)->name())));
  }
  EXPECT_THAT(info.options(), IsSupersetOf({"layout", "query_lengths", "kv_lengths", "boolean_mask",
                                            "additive_mask", "dtype", "lse", "weights", "scores",
                                            "priority", "timeout"}));
  for (const char* target : {"output_target", "lse_target", "weights_target", "scores_target"}) {
    EXPECT_THAT(info.options(), Not(Contains(target)));
  }
}

// The names are those of fields, so that a caller can find them in the .proto files.
TEST(ServerInfoTest, NamesOptionsAsTheApiDoes) {
  const v1::ServerInfo info = MakeServerInfo({});
  for (const std::string& option : info.options()) {
    EXPECT_TRUE(v1::AttentionOptions::descriptor()->FindFieldByName(option) != nullptr ||
                v1::AttendRequest::descriptor()->FindFieldByName(option) != nullptr ||
                v1::OutputOptions::descriptor()->FindFieldByName(option) != nullptr)
        << option;
  }
}

TEST(ServerInfoTest, TellsEveryLimit) {
  ServerFacts facts;
  facts.limits = {.max_head_dim = 1,
                  .max_value_dim = 2,
                  .max_heads = 3,
                  .max_batch = 4,
                  .max_length = 5,
                  .max_score_elements = 6};
  facts.max_message_bytes = 7;
  facts.max_queued_requests = 8;
  facts.max_streams_per_connection = 9;
  facts.max_queued_bytes = 10;
  facts.max_stream_requests = 11;
  const v1::Limits limits = MakeServerInfo(facts).limits();
  EXPECT_EQ(limits.max_head_dim(), 1);
  EXPECT_EQ(limits.max_value_dim(), 2);
  EXPECT_EQ(limits.max_heads(), 3);
  EXPECT_EQ(limits.max_batch(), 4);
  EXPECT_EQ(limits.max_length(), 5);
  EXPECT_EQ(limits.max_score_elements(), 6);
  EXPECT_EQ(limits.max_message_bytes(), 7);
  EXPECT_EQ(limits.max_queued_requests(), 8);
  EXPECT_EQ(limits.max_streams_per_connection(), 9);
  EXPECT_EQ(limits.max_stream_requests(), 11);
  EXPECT_EQ(limits.max_skeleton_bytes(), 65536 + 3 * 11 * facts.limits.max_batch);
  EXPECT_EQ(limits.max_queued_bytes(), 10);
  // A limit that is added to the API must be told too.
  EXPECT_EQ(v1::Limits::descriptor()->field_count(), 12);
}

}  // namespace
}  // namespace attend
