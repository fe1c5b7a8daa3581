// The C++ client, under the name that it is installed by.
#ifndef ATTEND_CLIENT_CPP_INCLUDE_ATTEND_CLIENT_H_
#define ATTEND_CLIENT_CPP_INCLUDE_ATTEND_CLIENT_H_

#include "client/cpp/client.h"

#endif  // ATTEND_CLIENT_CPP_INCLUDE_ATTEND_CLIENT_H_
