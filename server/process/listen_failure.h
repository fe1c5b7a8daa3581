// Why an address cannot be listened on.
#ifndef ATTEND_SERVER_PROCESS_LISTEN_FAILURE_H_
#define ATTEND_SERVER_PROCESS_LISTEN_FAILURE_H_

#include <optional>
#include <string>

#include "server/settings/address.h"

namespace attend {

// "cannot listen on 127.0.0.1:50051: Address already in use; ..." with what to do about it, for an
// address that gRPC or the admin port's library could not listen on: they do not tell us why. It
// finds out by trying the same with a socket of its own, which is closed when it returns. Nothing
// where that succeeds.
std::optional<std::string> FindListenFailure(const Address& address);

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_LISTEN_FAILURE_H_
