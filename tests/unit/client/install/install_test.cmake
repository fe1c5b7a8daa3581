# Installs the client into a folder of its own, then configures, builds and runs a program that finds it
# there. Arguments: BUILD_DIR (ours), WORK_DIR (emptied first), CXX_FLAGS, LINKER_FLAGS, BUILD_TYPE.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed with ${result}: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix --component client)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -G Ninja
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS} "-DCMAKE_EXE_LINKER_FLAGS=${LINKER_FLAGS}")
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
# A Unix socket that is not there: nobody can listen on it by chance.
run(${WORK_DIR}/build/consumer unix:${WORK_DIR}/no-such-socket)
file(REMOVE_RECURSE ${WORK_DIR})
