# What all targets of Shoal share.

add_library(shoal_flags INTERFACE)
target_compile_options(shoal_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
target_include_directories(shoal_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/shm/include)

# shoal_library(NAME SOURCES a.cpp ... [DEPENDS target ...]): one static library per folder, linked into the binaries and libshoal*.
function(shoal_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:shoal_flags> ${arg_DEPENDS})
endfunction()

add_custom_target(unit_tests)  # every test labelled unit: what the sanitizer presets build

# shoal_test(NAME SOURCES a_test.cpp ... [DEPENDS target ...] LABELS unit [TIMEOUT seconds]): one GoogleTest binary; each test is one ctest entry
# unless WHOLE is given (then the binary is one entry: for suites that share an expensive fixture).
function(shoal_test name)
  cmake_parse_arguments(arg "WHOLE" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE shoal_flags ${arg_DEPENDS} GTest::gtest GTest::gtest_main)
  if("unit" IN_LIST arg_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
  set(environment "SHOAL_SOURCE_DIR=${CMAKE_SOURCE_DIR}")  # one entry only: gtest_discover_tests takes lists apart
  if(arg_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}")
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}")
  endif()
endfunction()
