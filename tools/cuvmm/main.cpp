// The cuvmm command: its subcommands and its version.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "bench/bench.hpp"
#include "bench/options.hpp"
#include "command/output.hpp"
#include "command/words.hpp"
#include "conformance/case_command.hpp"
#include "conformance/conformance.hpp"
#include "conformance/options.hpp"
#include "conformance/sequences/play.hpp"
#include "doctor/doctor.hpp"
#include "emulate/command_line.hpp"
#include "emulate/emulate.hpp"
#include "replay/options.hpp"
#include "replay/replay.hpp"
#include "rules/rules.hpp"
#include "tour/access_probe.hpp"
#include "tour/multicast_probe.hpp"
#include "tour/options.hpp"
#include "tour/party.hpp"
#include "tour/tour.hpp"
#include "tour/unmap_probe.hpp"

namespace {

// What is wrong with a command line that names no subcommand.
std::string missing_subcommand(int count, char** words) {
  if (count < 2) return "a subcommand is needed; there are: tour, doctor, bench, replay, emulate, conformance, rules";
  return "there is no subcommand " + cuvmm::command::quoted(words[1]) +
         "; there are: tour, doctor, bench, replay, emulate, conformance, rules";
}

}  // namespace

int main(int count, char** words) {
  constexpr int exit_misuse = 2;
  cuvmm::command::keep_standard_descriptors();
  CLI::App application("Shows and explains CUDA's virtual memory management.", "cuvmm");
  application.set_version_flag("--version", "cuvmm " CUVMM_VERSION);
  application.require_subcommand(1);

  cuvmm::tour::Options options;
  CLI::App* tour = application.add_subcommand("tour", "Moves the bytes of a file through the features, one by one");
  cuvmm::tour::add_options(*tour, options);
  tour->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::doctor::Options doctor_options;
  CLI::App* doctor = application.add_subcommand(
      "doctor", "Tells what the devices can do for virtual memory, and what to do where they cannot");
  cuvmm::doctor::add_options(*doctor, doctor_options);
  doctor->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::bench::Options bench_options;
  CLI::App* bench =
      application.add_subcommand("bench", "Measures what cuvmm's ways cost beside others, in one run on the same work");
  cuvmm::bench::add_options(*bench, bench_options);
  bench->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::replay::Options replay_options;
  CLI::App* replay = application.add_subcommand(
      "replay", "Replays recorded allocations through several allocators, and shows the memory that each takes");
  cuvmm::replay::add_options(*replay, replay_options);
  replay->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::emulate::Options emulate_options;
  emulate_options.command = cuvmm::emulate::take_command(count, words);
  CLI::App* const emulate = application.add_subcommand("emulate", "Runs a program on the emulated driver");
  cuvmm::emulate::add_options(*emulate, emulate_options);
  emulate->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::conformance::Options conformance_options;
  CLI::App* conformance = application.add_subcommand(
      "conformance", "Asks a driver what it answers to driver calls, and compares that with a recorded machine");
  cuvmm::conformance::add_options(*conformance, conformance_options);
  conformance->set_version_flag("--version", "cuvmm " CUVMM_VERSION);
  cuvmm::conformance::CaseCommand case_command;
  const CLI::App* one_case = cuvmm::conformance::add_case_command(application, case_command);
  cuvmm::conformance::SequencesCommand sequences_command;
  const CLI::App* sequences = cuvmm::conformance::add_sequences_command(application, sequences_command);

  cuvmm::rules::Options rules_options;
  CLI::App* rules =
      application.add_subcommand("rules", "Prints the rules of virtual memory management, and what to do");
  cuvmm::rules::add_options(*rules, rules_options);
  rules->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::tour::AccessProbe access_probe;
  const CLI::App* access = cuvmm::tour::add_probe_command(application, access_probe);
  cuvmm::tour::UnmapProbe unmap_probe;
  cuvmm::tour::add_probe_command(application, unmap_probe);
  cuvmm::tour::MulticastProbe multicast_probe;
  const CLI::App* multicast = cuvmm::tour::add_probe_command(application, multicast_probe);
  cuvmm::tour::PartyCommand party_command;
  const CLI::App* party = cuvmm::tour::add_party_command(application, party_command);

  try {
    application.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 && application.get_subcommands().empty()) {
      std::cerr << "cuvmm: " << missing_subcommand(count, words) << '\n';
      return exit_misuse;
    }
    if (const auto hint = cuvmm::emulate::hint_at_the_mark(*emulate); error.get_exit_code() != 0 && hint) {
      std::cerr << "cuvmm emulate: " << *hint << '\n';
      return exit_misuse;
    }
    if (error.get_exit_code() != 0) std::cerr << "cuvmm " << application.get_subcommands().front()->get_name() << ": ";
    const bool misuse = application.exit(error) != 0;
    if (std::cout.flush()) return misuse ? exit_misuse : 0;
    std::cerr << "cuvmm: Standard output cannot be written to: what it was to take is lost.\n";
    return exit_misuse;
  }
  if (doctor->parsed()) return cuvmm::doctor::run_doctor(doctor_options);
  if (bench->parsed()) return cuvmm::bench::run_bench(bench_options);
  if (replay->parsed()) return cuvmm::replay::run_replay(replay_options);
  if (conformance->parsed()) return cuvmm::conformance::run_conformance(conformance_options);
  if (rules->parsed()) return cuvmm::rules::run_rules(rules_options);
  if (one_case->parsed()) cuvmm::conformance::run_case_command(case_command);
  if (sequences->parsed()) cuvmm::conformance::run_sequences_command(sequences_command);
  if (emulate->parsed()) return cuvmm::emulate::run_emulate(emulate_options);
  if (tour->parsed()) return cuvmm::tour::run_tour(options);
  if (party->parsed()) return cuvmm::tour::run_party(party_command);
  if (access->parsed()) cuvmm::tour::run_probe(access_probe);
  if (multicast->parsed()) cuvmm::tour::run_probe(multicast_probe);
  cuvmm::tour::run_probe(unmap_probe);
}
