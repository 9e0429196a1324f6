#include "conformance/case_command.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "conformance/cases/drivers.hpp"

namespace cuvmm::conformance {
namespace {

constexpr const char* command_name = "conformance-case";

}  // namespace

DriverFactory DriverOfProcess::factory(const Needs& needs) const {
  return cuda ? cuda_driver() : emulated_driver(devices, profile, machine_for(needs));
}

std::vector<std::string> DriverOfProcess::words() const {
  std::vector<std::string> words{"--devices", std::to_string(devices)};
  if (cuda)
    words.emplace_back("--cuda");
  else if (!profile.empty())
    words.push_back("--profile=" + profile);
  return words;
}

void add_driver_options(CLI::App& command, DriverOfProcess& driver) {
  command.add_flag("--cuda", driver.cuda);
  command.add_option("--devices", driver.devices);
  command.add_option("--profile", driver.profile);
}

void become_self(const std::vector<std::string>& words, int descriptor) {
  std::vector<std::string> copies{"cuvmm"};
  copies.insert(copies.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (::dup2(descriptor, STDOUT_FILENO) < 0) return;
  ::execv("/proc/self/exe", pointers.data());
}

Performer started_anew(const DriverOfProcess& driver) {
  return [driver](const Case& wanted, int descriptor) {
    std::vector<std::string> words{command_name, wanted.id};
    const std::vector<std::string> more = driver.words();
    words.insert(words.end(), more.begin(), more.end());
    become_self(words, descriptor);
    write_to(descriptor, "(cannot be started)");
  };
}

CLI::App* add_case_command(CLI::App& application, CaseCommand& command) {
  CLI::App* const added = application.add_subcommand(command_name, "One case; for conformance");
  added->group("");  // not shown: no use to people
  added->add_option("id", command.id)->required();
  add_driver_options(*added, command.driver);
  return added;
}

void run_case_command(const CaseCommand& command) {
  const Table table = all_cases();
  const Case* const wanted = table.find(command.id);
  write_to(STDOUT_FILENO,
           wanted == nullptr ? "(no such case)" : perform(*wanted, command.driver.factory(wanted->needs)));
  ::_exit(0);
}

}  // namespace cuvmm::conformance
