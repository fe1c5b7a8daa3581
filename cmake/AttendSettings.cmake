# Compiler settings that every target of ours shares. Targets link attend_settings PRIVATE.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Sanitizers instrument everything that is compiled here, generated code included.
if(ATTEND_SANITIZE)
  add_compile_options(-fsanitize=${ATTEND_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${ATTEND_SANITIZE})
endif()
if(ATTEND_SANITIZE STREQUAL "thread")
  include(AttendTsan)
endif()

add_library(attend_settings INTERFACE)
target_compile_options(attend_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow
                                                 -Wnon-virtual-dtor -Wno-missing-field-initializers)
target_compile_options(attend_settings INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(ATTEND_WERROR)
  target_compile_options(attend_settings INTERFACE -Werror)
  # False alarms of GCC: 12 about std::string where it is assigned a literal, 14 about the unused
  # half of an absl::InlinedVector where it is moved.
  target_compile_options(attend_settings INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-error=restrict -Wno-error=maybe-uninitialized>)
endif()
