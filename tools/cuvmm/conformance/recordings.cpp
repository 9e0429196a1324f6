#include "conformance/recordings.hpp"

#include <array>

// The assembler takes the files in as they are; a compiler takes long over a megabyte of text.
// NOLINTBEGIN(hicpp-no-assembler)
#define CUVMM_EMBED(name, path)                                 \
  __asm__(                                                      \
      ".pushsection .rodata\n"                                  \
      "cuvmm_" #name ":\n.incbin \"" path "\"\ncuvmm_" #name    \
      "_end:\n"                                                 \
      ".popsection\n");                                         \
  extern "C" const char name##_begin[] __asm__("cuvmm_" #name); \
  extern "C" const char name##_end[] __asm__("cuvmm_" #name "_end")
// NOLINTEND(hicpp-no-assembler)

CUVMM_EMBED(h200_580_answers, CUVMM_PROFILES "/h200-580/answers.tsv");
CUVMM_EMBED(h200_580_sequences, CUVMM_PROFILES "/h200-580/sequences.txt");

namespace cuvmm::conformance {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

const std::array<Recordings, 1>& all_recordings() {
  static const std::array<Recordings, 1> all{
      {{"h200-580", "NVIDIA H200, driver 580", between(h200_580_answers_begin, h200_580_answers_end),
        between(h200_580_sequences_begin, h200_580_sequences_end)}}};
  return all;
}

}  // namespace

const Recordings* find_recordings(std::string_view profile) {
  for (const Recordings& each : all_recordings())
    if (each.profile == profile) return &each;
  return nullptr;
}

std::vector<std::string> recorded_profiles() {
  std::vector<std::string> names;
  for (const Recordings& each : all_recordings()) names.emplace_back(each.profile);
  return names;
}

}  // namespace cuvmm::conformance
