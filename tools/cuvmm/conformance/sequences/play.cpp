#include "conformance/sequences/play.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "conformance/cases/process_pool.hpp"
#include "conformance/sequences/generator.hpp"

namespace cuvmm::conformance {
namespace {

constexpr const char* command_name = "conformance-sequences";
constexpr const char* not_clean = "!c";
constexpr char complaint_mark = 'E';  // begins a line that is no sequence but says why there is none
constexpr std::uint64_t most_in_a_process = 100;

// Consecutive seeds for one process.
struct Batch {
  std::uint64_t seed;
  std::uint64_t count;
};

std::vector<Batch> batches_of(std::uint64_t seed, std::uint64_t count) {
  std::vector<Batch> batches;
  for (std::uint64_t done = 0; done < count; done += most_in_a_process)
    batches.push_back({seed + done, std::min(most_in_a_process, count - done)});
  return batches;
}

Task task_of(const Batch& batch, const DriverOfProcess& driver) {
  return {[batch, driver](int descriptor) {
    std::vector<std::string> words{command_name, std::to_string(batch.seed), std::to_string(batch.count)};
    const std::vector<std::string> more = driver.words();
    words.insert(words.end(), more.begin(), more.end());
    become_self(words, descriptor);
    write_to(descriptor, std::string{complaint_mark} + " this program cannot be started anew\n");
  }};
}

// The sequence whose process died within it: "SEED STEPS".
RecordedSequence cut_off(std::string_view line, const Ended& ended, std::uint64_t seed, int devices) {
  RecordedSequence sequence;
  sequence.seed = seed;
  line.remove_prefix(std::min(line.size(), line.find(' ') + 1));
  sequence.steps = take_steps(line);
  sequence.end = ended.timed_out ? std::string{timed_out_end}
                                 : "!" + std::to_string(WIFSIGNALED(ended.status) ? WTERMSIG(ended.status) : 0);
  sequence.checksum = checksum_of_calls(seed, devices, sequence.steps);
  return sequence;
}

// What a process has played of its batch. Throws std::runtime_error if it could not even begin.
std::vector<RecordedSequence> played(const Ended& ended, const Batch& batch, int devices) {
  std::vector<RecordedSequence> sequences;
  std::string_view text = ended.output;
  while (text.find('\n') != std::string_view::npos) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (!line.empty() && line.front() == complaint_mark)
      throw std::runtime_error("Sequences cannot be played:" + std::string{line.substr(1)} + ".");
    sequences.push_back(parse_sequence(line, "a process that plays sequences"));
  }
  if (!ended.complaint().empty() && sequences.size() < batch.count)
    sequences.push_back(cut_off(text, ended, batch.seed + sequences.size(), devices));
  return sequences;
}

}  // namespace

RecordedSequence play(std::uint64_t seed, int devices, Player& player,
                      const std::function<void(const Step&)>& answered) {
  Generator generator{seed, devices};
  RecordedSequence sequence;
  sequence.seed = seed;
  player.world = &generator.world();
  try {
    while (const auto call = generator.next()) {
      if (generator.must_settle()) player.settle();
      sequence.steps.push_back(call->operation->perform(*call, player));
      if (answered) answered(sequence.steps.back());
      generator.answered(sequence.steps.back().code);
    }
    player.clean_up(generator.world());
  } catch (const NotClean&) {
    sequence.end = not_clean;
  }
  sequence.checksum = generator.checksum().value();
  return sequence;
}

std::vector<RecordedSequence> play_in_processes(std::uint64_t seed, std::uint64_t count, const DriverOfProcess& driver,
                                                const PoolOptions& pool) {
  std::vector<RecordedSequence> all;
  std::vector<Batch> left = batches_of(seed, count);
  while (!left.empty()) {
    std::vector<Task> tasks;
    tasks.reserve(left.size());
    for (const Batch& each : left) tasks.push_back(task_of(each, driver));
    std::vector<Batch> again;
    run_tasks(tasks, pool, [&](std::size_t index, const Ended& ended) {
      const Batch& batch = left[index];
      const std::vector<RecordedSequence> done = played(ended, batch, driver.devices);
      if (done.empty()) throw std::runtime_error("Sequences cannot be played: their process ends without a word.");
      if (done.size() < batch.count) again.push_back({batch.seed + done.size(), batch.count - done.size()});
      all.insert(all.end(), done.begin(), done.end());
    });
    left = std::move(again);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& left_one, const auto& right_one) { return left_one.seed < right_one.seed; });
  return all;
}

CLI::App* add_sequences_command(CLI::App& application, SequencesCommand& command) {
  CLI::App* const added = application.add_subcommand(command_name, "Random sequences; for conformance");
  added->group("");  // not shown: no use to people
  added->add_option("seed", command.seed)->required();
  added->add_option("count", command.count)->required();
  add_driver_options(*added, command.driver);
  return added;
}

void run_sequences_command(const SequencesCommand& command) {
  try {
    // Never taken down, as a driver with a broken context might not come to an end.
    Player& player = *new Player{command.driver.factory()(), command.driver.devices};
    for (std::uint64_t each = 0; each < command.count; ++each) {
      write_to(STDOUT_FILENO, std::to_string(command.seed + each) + ' ');
      // Step by step, so that what was answered is known if the next call ends the process.
      const RecordedSequence sequence = play(command.seed + each, command.driver.devices, player,
                                             [](const Step& step) { write_to(STDOUT_FILENO, to_text(step)); });
      write_to(STDOUT_FILENO, sequence.end + ' ' + hexadecimal(sequence.checksum) + '\n');
      if (!sequence.end.empty()) break;
    }
  } catch (const std::exception& error) {
    write_to(STDOUT_FILENO, std::string{complaint_mark} + ' ' + error.what() + '\n');
  }
  ::_exit(0);
}

}  // namespace cuvmm::conformance
