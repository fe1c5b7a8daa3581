// Proof that this process computes attention, before it says that it serves.
#ifndef ATTEND_SERVER_PROCESS_SELF_TEST_H_
#define ATTEND_SERVER_PROCESS_SELF_TEST_H_

#include "absl/status/status.h"
#include "core/attention/attention.h"
#include "core/executor/executor.h"

namespace attend {

// Computes small problems of each dtype on the fast path and compares them with the reference.
// Errors: INTERNAL that names the dtype and the difference; those of ComputeAttention.
// Cost: milliseconds.
absl::Status RunSelfTest(AttentionEngine& engine, Executor& executor);

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_SELF_TEST_H_
