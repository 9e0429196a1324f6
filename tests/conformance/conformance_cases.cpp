// Runs the conformance cases against a driver and prints "id<TAB>answer" for each, in the order of the table.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "conformance/case_process.hpp"
#include "conformance/drivers.hpp"

namespace {

using namespace cuvmm::conformance;

struct Options {
  std::string driver = "cuda";
  std::string only;
  bool list = false;
  unsigned jobs = 1;
  unsigned time_limit = 20;
};

int parse(Options& options, int argc, char** argv) {
  CLI::App app{"Asks a CUDA driver what it does, one case a process"};
  app.add_option("--driver", options.driver, "the driver to ask")
      ->check(CLI::IsMember({"cuda", "emulated"}))
      ->capture_default_str();
  app.add_option("--only", options.only, "run only cases whose id contains this");
  app.add_flag("--list", options.list, "print the ids, and what each case needs, and run nothing");
  app.add_option("--jobs", options.jobs, "cases at a time; those that must be alone are")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--time-limit", options.time_limit, "seconds that one case may take")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return -1;
}

void list(const Case& each) {
  std::string needs;
  if (each.needs.devices > 1) needs += "\t" + std::to_string(each.needs.devices) + " devices";
  if (each.needs.alone) needs += "\talone";
  if (each.needs.processes) needs += "\tprocesses";
  std::printf("%s%s\n", each.id.c_str(), needs.c_str());
}

void print(const Case& each, const std::string& answer) {
  std::printf("%s\t%s\n", each.id.c_str(), answer.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const int status = parse(options, argc, argv); status >= 0) return status;
  std::vector<Case> wanted;
  const Table table = all_cases();
  for (const Case& each : table.cases())
    if (each.id.find(options.only) != std::string::npos) wanted.push_back(each);
  if (options.list) {
    for (const Case& each : wanted) list(each);
    return 0;
  }
  RunOptions run;
  run.jobs = options.jobs;
  run.time_limit = std::chrono::seconds{options.time_limit};
  run_cases(wanted, options.driver == "cuda" ? cuda_driver() : emulated_driver(), run, print);
  return 0;
}
