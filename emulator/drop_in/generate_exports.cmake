# Run as a script: writes what makes a library the driver's by name, from the list of its symbols and our own list of
# entry points.
#
#   SYMBOLS       symbols.txt
#   ENTRY_POINTS  entry_points.def
#   BY_HAND       C++ files, whose lines "CUVMM_EXPORT CUresult NAME(" define forms that are written by hand
#   SOURCE        is written: a function for each other symbol, and the table for cuGetProcAddress
#   VERSIONS      is written: the linker's list of what is exported
#
# Ends with an error where an entry point's form has no symbol, so that none can be forgotten.
cmake_minimum_required(VERSION 3.25)

set(by_hand "")
foreach(file IN LISTS BY_HAND)
  file(STRINGS "${file}" lines REGEX "^CUVMM_EXPORT CUresult cu[A-Za-z0-9_]+\\(")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^CUVMM_EXPORT CUresult (cu[A-Za-z0-9_]+)\\(.*" "\\1" symbol "${line}")
    list(APPEND by_hand "${symbol}")
  endforeach()
endforeach()

# The form (name, version) of each entry point: its parameters and arguments.
file(STRINGS "${ENTRY_POINTS}" lines REGEX "^CUVMM_ENTRY_POINT\\(")
set(entry_points "")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^CUVMM_ENTRY_POINT\\([a-z]+, (cu[A-Za-z0-9]+(_v2)?), ([0-9]+), (\\(.*\\)), (\\(.*\\))\\)$")
    message(FATAL_ERROR "${ENTRY_POINTS}: this is no entry point: ${line}")
  endif()
  set(entry_point "${CMAKE_MATCH_1}")
  set(version "${CMAKE_MATCH_3}")
  set(parameters "${CMAKE_MATCH_4}")
  set(arguments "${CMAKE_MATCH_5}")
  string(REGEX REPLACE "_v2$" "" looked_up "${entry_point}")
  set(form "${looked_up}_${version}")
  set(entry_point_of_${form} "${entry_point}")
  set(parameters_of_${form} "${parameters}")
  set(arguments_of_${form} "${arguments}")
  list(APPEND entry_points "${form}")
endforeach()

set(functions "")
set(declarations "")
set(table "")
set(exported "")
set(forms_with_a_symbol "")

# export_entry_point(SYMBOL FORM ARGUMENTS): a function that hands its arguments to the process's driver.
function(export_entry_point symbol form arguments)
  string(REGEX REPLACE "^\\((.*)\\)$" "\\1" arguments "${arguments}")
  string(APPEND functions
         "CUVMM_EXPORT CUresult ${symbol}${parameters_of_${form}} {\n  return call<EntryPoint::${entry_point_of_${form}}>(${arguments});\n}\n")
  set(functions "${functions}" PARENT_SCOPE)
endfunction()

file(STRINGS "${SYMBOLS}" lines REGEX "^[^#]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^(cu[A-Za-z0-9_]+) (cu[A-Za-z0-9]+) ([0-9]+) (legacy|per-thread)$")
    message(FATAL_ERROR "${SYMBOLS}: this is no symbol: ${line}")
  endif()
  set(symbol "${CMAKE_MATCH_1}")
  set(name "${CMAKE_MATCH_2}")
  set(version "${CMAKE_MATCH_3}")
  set(stream "${CMAKE_MATCH_4}")
  set(form "${name}_${version}")
  if(stream STREQUAL "legacy")
    set(form_of_${symbol} "${form}")
    list(APPEND forms_with_a_symbol "${form}")
  else()
    # A per-thread form came later than the form whose parameters it shares: its symbol tells which that is.
    string(REGEX REPLACE "_pt[ds][sz]$" "" shared "${symbol}")
    set(form "${form_of_${shared}}")
  endif()

  if(symbol IN_LIST by_hand)
    string(APPEND declarations "CUVMM_EXPORT CUresult ${symbol}();\n")
    list(REMOVE_ITEM by_hand "${symbol}")
  elseif(NOT form IN_LIST entry_points)
    math(EXPR major "${version} / 1000")
    math(EXPR minor "${version} % 1000 / 10")
    string(APPEND functions "CUVMM_EXPORT CUresult ${symbol}() {\n  static Told told;\n"
                            "  return not_offered(\"${symbol} (CUDA ${major}.${minor})\", told);\n}\n")
  elseif(stream STREQUAL "legacy")
    export_entry_point(${symbol} ${form} "${arguments_of_${form}}")
  elseif(parameters_of_${form} MATCHES "CUstream stream[,)]")
    string(REGEX REPLACE "([( ])stream([,)])" "\\1of_this_thread(stream)\\2" arguments "${arguments_of_${form}}")
    export_entry_point(${symbol} ${form} "${arguments}")
  else()
    message(FATAL_ERROR "${symbol} has no stream to hand on: write it by hand, in per_thread_forms.cpp")
  endif()
  string(APPEND exported "    ${symbol};\n")

  string(REPLACE "-" "_" stream "${stream}")
  string(APPEND table "    {\"${name}\", ${version}, DefaultStream::${stream}, reinterpret_cast<void*>(&${symbol})},\n")
endforeach()

foreach(form IN LISTS entry_points)
  if(NOT form IN_LIST forms_with_a_symbol)
    message(FATAL_ERROR "${ENTRY_POINTS} has the form ${form} (name and version), of which ${SYMBOLS} has no symbol")
  endif()
endforeach()
if(by_hand)
  message(FATAL_ERROR "written by hand, but not in ${SYMBOLS}: ${by_hand}")
endif()

file(WRITE "${SOURCE}" "// Generated from the list of the driver's symbols and the list of entry points.
#include \"emulator/drop_in/exported.hpp\"
#include \"emulator/drop_in/look_up.hpp\"

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;
using cuvmm::driver::EntryPoint;

extern \"C\" {
// Written by hand elsewhere, with their parameters.
${declarations}
${functions}}

namespace cuvmm::emulator::drop_in {
namespace {

const Form all[] = {
${table}};

}  // namespace

std::span<const Form> forms() noexcept {
  return all;
}

}  // namespace cuvmm::emulator::drop_in
")
file(WRITE "${VERSIONS}" "{\n  global:\n    cuvmm_emulated_driver;\n    cuvmm_emulated_place;\n    cuvmm_emulated_explanation;\n${exported}  local:\n    *;\n};\n")
