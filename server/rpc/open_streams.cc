#include "server/rpc/open_streams.h"

#include <memory>
#include <vector>

#include "server/rpc/attend_stream.h"

namespace attend {

bool OpenStreams::Add(AttendStream* stream) {
  absl::MutexLock lock(&mutex_);
  streams_.insert(stream);
  return draining_;
}

void OpenStreams::Remove(AttendStream* stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

void OpenStreams::Drain() {
  std::vector<std::shared_ptr<AttendStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    // A stream is removed before it goes, so those found here are alive.
    for (AttendStream* stream : streams_) streams.push_back(stream->shared_from_this());
  }
  for (const auto& stream : streams) stream->Drain();
}

}  // namespace attend
