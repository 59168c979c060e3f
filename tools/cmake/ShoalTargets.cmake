# What all targets of Shoal share.

add_library(shoal_flags INTERFACE)
target_compile_options(shoal_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
# A library must not call a program's copy of an inline function, which may be of another release, nor give the program its own.
target_compile_options(shoal_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(shoal_flags INTERFACE -Wno-restrict)  # GCC 12 warns of std::string's own copies (its bug 105651)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(shoal_flags INTERFACE -Wno-subobject-linkage)  # GCC takes the included sources for headers
endif()
target_include_directories(shoal_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/shm/include)

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(shoal_flags INTERFACE -Wthread-safety -Werror=thread-safety)
  foreach(sanitizer address thread)  # by GCC's names, which clang does not define before its version 21
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=${sanitizer}" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 21)
      string(TOUPPER __SANITIZE_${sanitizer}__ macro)
      target_compile_definitions(shoal_flags INTERFACE ${macro})
    endif()
  endforeach()
endif()

if(SHOAL_COVERAGE)
  add_library(shoal_coverage_exit STATIC ${CMAKE_SOURCE_DIR}/tests/support/coverage_exit.cpp)
  target_link_libraries(shoal_flags INTERFACE shoal_coverage_exit)
endif()

# What most sources include, compiled once. GCC takes a precompiled header under its own flags only, so every library gets OpenMP's, which
# some have. The preset dev has no such headers: there each file includes what it needs.
set(SHOAL_HEADERS <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <set> <span> <sstream> <string> <unordered_map> <vector>)
file(CONFIGURE OUTPUT headers.cpp CONTENT "")
add_library(shoal_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/headers.cpp)
target_link_libraries(shoal_headers PRIVATE shoal_flags)
target_compile_options(shoal_headers PRIVATE ${OpenMP_CXX_FLAGS})
target_precompile_headers(shoal_headers PRIVATE ${SHOAL_HEADERS})

# shoal_library(NAME SOURCES a.cpp ... [DEPENDS target ...] [FLAGS option ...]): one static library per folder, linked into the binaries and
# libshoal*. FLAGS are options of its own: ${SHOAL_COLD_FLAGS} where speed does not count.
function(shoal_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;FLAGS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:shoal_flags> ${arg_DEPENDS})
  target_compile_options(${name} PRIVATE ${OpenMP_CXX_FLAGS} ${arg_FLAGS})
  if(arg_FLAGS)
    target_precompile_headers(${name} PRIVATE ${SHOAL_HEADERS})
  else()
    target_precompile_headers(${name} REUSE_FROM shoal_headers)
  endif()
endfunction()

# The release since which the libraries only grow: a program that is linked against it runs with every later one (tests/abi).
set(SHOAL_ABI_VERSION 0.3)

# shoal_shared_library(NAME EXPORT_NAME name MAP file PARTS target ... HEADERS file ... BASE_DIRS dir ... [DEPENDS target ...] [C_INTERFACE]):
# a library that programs outside this tree link, from the objects of the folders in PARTS and what these need. It shows what MAP names,
# under this ABI version, and nothing else; DEPENDS are libraries of this kind whose types its headers use. With C_INTERFACE its headers
# are C: programs that use it need not be C++20.
function(shoal_shared_library name)
  cmake_parse_arguments(arg "C_INTERFACE" "EXPORT_NAME;MAP" "PARTS;HEADERS;BASE_DIRS;DEPENDS" ${ARGN})
  add_library(${name} SHARED)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS})
  foreach(part IN LISTS arg_PARTS)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${part}>)
    target_link_libraries(${name} PRIVATE ${part})
  endforeach()
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${arg_BASE_DIRS} FILES ${arg_HEADERS})
  if(NOT arg_C_INTERFACE)
    target_compile_features(${name} INTERFACE cxx_std_20)
  endif()
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${name}.map)
  configure_file(${arg_MAP} ${map} @ONLY)
  target_link_options(${name} PRIVATE -Wl,--version-script=${map})
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")  # clang's sanitizers leave their names to the program
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(${name} PROPERTIES PREFIX "" EXPORT_NAME ${arg_EXPORT_NAME} LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    VERSION ${PROJECT_VERSION} SOVERSION ${SHOAL_ABI_VERSION} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  install(TARGETS ${name} EXPORT shoalTargets
    LIBRARY COMPONENT libshoal NAMELINK_COMPONENT libshoal-dev
    FILE_SET HEADERS COMPONENT libshoal-dev)
endfunction()

add_custom_target(unit_tests)     # every test labelled unit: what the preset asan builds
add_custom_target(threads_tests)  # every test labelled threads: what the preset tsan builds

# An executable whose own code need not be fast, because what it tests is: compiled in a fraction of the time. GCC takes a precompiled
# header under its own flags only, so all of them get OpenMP's, which some have. Call it behind target_link_libraries(): that says which header
# the code gets.
function(shoal_test_code name)
  target_compile_options(${name} PRIVATE ${SHOAL_TEST_FLAGS} ${OpenMP_CXX_FLAGS})
  get_target_property(dependencies ${name} LINK_LIBRARIES)
  if("shoal_test_pool" IN_LIST dependencies)
    target_precompile_headers(${name} REUSE_FROM shoal_pool_test_headers)
  else()
    target_precompile_headers(${name} REUSE_FROM shoal_test_headers)
  endif()
endfunction()

# shoal_test(NAME SOURCES a_test.cpp ... [DEPENDS target ...] LABELS unit [TIMEOUT seconds] [WHOLE] [SERIAL] [OPTIMIZED]): one GoogleTest
# binary. Each test is one ctest entry. With WHOLE the binary is one entry: for suites that share an expensive fixture. With SERIAL no other
# test runs at the same time: for tests that measure. With OPTIMIZED the test is compiled as the code under test is: for simulators and
# explorers, which do most of the work themselves.
function(shoal_test name)
  cmake_parse_arguments(arg "WHOLE;SERIAL;OPTIMIZED" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE shoal_flags ${arg_DEPENDS} GTest::gtest GTest::gtest_main)
  if(NOT arg_OPTIMIZED)
    shoal_test_code(${name})
  endif()
  foreach(label unit threads)
    if(label IN_LIST arg_LABELS)
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
  set(environment "SHOAL_SOURCE_DIR=${CMAKE_SOURCE_DIR}")  # one entry only: gtest_discover_tests takes lists apart
  if(arg_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL} ENVIRONMENT "${environment}"
      COST 100)  # long ones first, so that nobody waits for them at the end
  else()
    list(JOIN arg_LABELS "-" labels)  # one word, for the same reason; ctest takes labels for patterns, so it answers to each
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL} ENVIRONMENT "${environment}")
  endif()
endfunction()
