#include "conformance/cases/case_process.hpp"

#include <exception>
#include <utility>

namespace cuvmm::conformance {

std::string perform(const Case& wanted, const DriverFactory& make_driver) {
  try {
    // Never taken down, as a driver that a case has broken might not come to an end.
    Environment& cuda = *new Environment{make_driver};
    if (const auto failed = cuda.begin(wanted.needs.start)) return *failed;
    if (wanted.needs.start >= Start::initialized && cuda.device_count() < wanted.needs.devices)
      return "(needs " + std::to_string(wanted.needs.devices) + " devices)";
    const std::string answer = wanted.function(cuda).text();
    return cuda.notes() + answer;
  } catch (const std::exception& error) {
    return std::string{"(exception: "} + error.what() + ")";
  }
}

Performer forked(DriverFactory make_driver) {
  return [make_driver = std::move(make_driver)](const Case& wanted, int descriptor) {
    write_to(descriptor, perform(wanted, make_driver));
  };
}

std::string run_case(const Case& wanted, const Performer& performer, std::chrono::seconds time_limit) {
  std::string said;
  run_cases({wanted}, performer, {time_limit, 1}, [&](const Case&, const std::string& answer) { said = answer; });
  return said;
}

void run_cases(const std::vector<Case>& cases, const Performer& performer, const PoolOptions& options,
               const Report& report) {
  std::vector<Task> tasks;
  tasks.reserve(cases.size());
  for (const Case& each : cases)
    tasks.push_back({[&](int descriptor) { performer(each, descriptor); }, each.needs.alone});
  run_tasks(tasks, options, [&](std::size_t index, const Ended& ended) {
    const std::string complaint = ended.complaint();
    report(cases[index], complaint.empty() ? ended.output : complaint);
  });
}

}  // namespace cuvmm::conformance
