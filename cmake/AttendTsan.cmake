# Every program of a ThreadSanitizer build is linked with what shows TSan the locks of Abseil.
find_package(absl CONFIG REQUIRED)
add_library(attend_tsan_abseil OBJECT ${PROJECT_SOURCE_DIR}/deploy/sanitizers/tsan_abseil.cc)
target_link_libraries(attend_tsan_abseil PRIVATE absl::synchronization)
set(is_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
link_libraries($<${is_program}:$<TARGET_OBJECTS:attend_tsan_abseil>>
               $<${is_program}:absl::synchronization>)
