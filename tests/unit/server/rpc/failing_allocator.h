// An allocator that fails when a test says so, in place of the program's own.
#ifndef ATTEND_TESTS_UNIT_SERVER_RPC_FAILING_ALLOCATOR_H_
#define ATTEND_TESTS_UNIT_SERVER_RPC_FAILING_ALLOCATOR_H_

namespace attend {

// Allocations of this thread that succeed before one fails; below 0: none fails, as after the one
// that has.
extern thread_local int allocations_left;

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_SERVER_RPC_FAILING_ALLOCATOR_H_
