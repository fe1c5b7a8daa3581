#include "core/base/suggest.h"

#include "gtest/gtest.h"

namespace attend {
namespace {

TEST(DidYouMeanTest, OffersTheNearestNameOrNothing) {
  EXPECT_EQ(DidYouMean("thread", {"listen", "threads"}, "--"), ", did you mean --threads?");
  EXPECT_EQ(DidYouMean("queue-dealy", {"queue-delay", "queue-bytes"}),
            ", did you mean queue-delay?");
  EXPECT_EQ(DidYouMean("colour", {"listen", "threads"}), "");
}

}  // namespace
}  // namespace attend
