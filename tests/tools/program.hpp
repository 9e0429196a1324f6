// The built cuvmm command, run as a user runs it.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "temporary_directory.hpp"

namespace cuvmm::tests {

struct ProgramResult {
  int status;  // the exit status, or -1 if it was ended by a signal
  std::string output;
  std::string errors;
};

inline std::string quoted_for_shell(const std::string& word) {
  std::string text = "'";
  for (const char character : word) text += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return text + "'";
}

inline std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Runs the program with the arguments; `environment` holds settings ("NAME=value") beside those of the test, of which
// none that begins with CUVMM_ is passed on, nor, where a word is "emulated", any that turns multicast off. Standard
// output goes to `output_to`, if that is given, and is not read.
inline ProgramResult run_program(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment = {}, const std::string& output_to = {}) {
  const TemporaryDirectory directory;
  const std::string output = output_to.empty() ? directory.path("output") : output_to;
  const std::string errors = directory.path("errors");
  std::string line = "for name in $(env | sed -n 's/^\\(CUVMM_[A-Z_]*\\)=.*/\\1/p'); do unset $name; done; ";
  if (std::find(arguments.begin(), arguments.end(), "emulated") != arguments.end())
    line += "unset NCCL_NVLS_ENABLE TORCH_SYMM_MEM_DISABLE_MULTICAST NVSHMEM_DISABLE_NVLS; ";
  line += "exec env";
  for (const std::string& setting : environment) line += " " + quoted_for_shell(setting);
  line += " " + quoted_for_shell(CUVMM_PROGRAM);
  for (const std::string& argument : arguments) line += " " + quoted_for_shell(argument);
  line += " </dev/null >" + quoted_for_shell(output) + " 2>" + quoted_for_shell(errors);
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output_to.empty() ? content_of(output) : "",
          content_of(errors)};
}

}  // namespace cuvmm::tests
