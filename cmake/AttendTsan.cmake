# Every program of a ThreadSanitizer build is linked with what shows TSan the locks of Abseil and the
# order of gRPC's operations.
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
add_library(attend_tsan OBJECT
  ${PROJECT_SOURCE_DIR}/deploy/sanitizers/tsan_abseil.cc
  ${PROJECT_SOURCE_DIR}/deploy/sanitizers/tsan_grpc.cc)
target_include_directories(attend_tsan PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(attend_tsan PRIVATE absl::synchronization gRPC::grpc++)
set(is_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
link_libraries($<BUILD_INTERFACE:$<${is_program}:$<TARGET_OBJECTS:attend_tsan>>>
               $<BUILD_INTERFACE:$<${is_program}:absl::synchronization>>)
