// What the C library does with memory that was freed.
#ifndef ATTEND_CORE_BASE_FREED_MEMORY_H_
#define ATTEND_CORE_BASE_FREED_MEMORY_H_

namespace attend {

// Has the C library keep what is freed for what comes next, where by default it may give anything
// over 128 KiB back to the system at once. For programs that carry large messages, as the first
// thing that they do: gRPC frees and takes the same few hundred KiB with each message, and each
// page that went back in between is a fault. It also takes no more heaps than there are processors,
// each of which keeps its own most. A variable of the environment, such as MALLOC_TRIM_THRESHOLD_,
// loses against this. Does nothing where the C library is not glibc.
void KeepFreedMemory();

// Gives back what nobody uses: milliseconds, for when there is nothing else to do. Thread-safety:
// safe from any thread.
void GiveBackFreedMemory();

}  // namespace attend

#endif  // ATTEND_CORE_BASE_FREED_MEMORY_H_
