# cmake --install for what callers use: the commands, the C++ client library with its headers
# and package config (find_package(attend) gives attend::client), and the .proto files.
if(NOT ATTEND_BUILD_CLIENT)
  return()
endif()
include(CMakePackageConfigHelpers)

set(attend_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
set(attend_header_dir ${CMAKE_INSTALL_INCLUDEDIR}/attend)

# attend_settings carries our own warnings; it is exported empty-handed, since targets link it PRIVATE.
set_target_properties(attend_client PROPERTIES EXPORT_NAME client)
install(TARGETS attend_client attend_base attend_proto attend_health_proto attend_settings
        EXPORT attendTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
install(EXPORT attendTargets NAMESPACE attend:: DESTINATION ${attend_package_dir} COMPONENT client)

install(FILES client/cpp/client.h client/cpp/client_options.h client/cpp/errors.h
        DESTINATION ${attend_header_dir}/client/cpp COMPONENT client)
install(FILES core/base/attention_problem.h core/base/dtype.h core/base/status.h core/base/tensor.h
              core/base/merge.h core/base/npy.h core/base/safetensors.h core/base/reference.h
        DESTINATION ${attend_header_dir}/core/base COMPONENT client)
install(FILES client/cpp/include/attend/client.h DESTINATION ${attend_header_dir} COMPONENT client)
install(DIRECTORY proto/attend proto/grpc DESTINATION ${CMAKE_INSTALL_DATADIR}/attend/proto
        COMPONENT client FILES_MATCHING PATTERN "*.proto")

configure_package_config_file(cmake/AttendConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/attend-config.cmake INSTALL_DESTINATION ${attend_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/attend-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attend-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/attend-config-version.cmake
        DESTINATION ${attend_package_dir} COMPONENT client)

install(TARGETS attend_cli attend_load RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
