// Pickles: what is read, and that nothing else does any harm.
#include "traces/pickle.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {
namespace {

using namespace std::string_literals;
using Type = PlainValues::Type;

std::string refusal_of(const std::string& bytes) {
  try {
    static_cast<void>(read_pickle(bytes));
  } catch (const Broken& broken) {
    return broken.what();
  }
  return "nothing is refused";
}

// Of protocol 4, without its begin and end.
std::string pickle(const std::string& opcodes) {
  return "\x80\x04"s + opcodes + ".";
}

std::string sample(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(CUVMM_TRACES) + "/" + name, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Pickle, ReadsScalars) {
  const auto natural = [](const std::string& opcodes) {
    const std::string bytes = pickle(opcodes);
    const PlainValues values = read_pickle(bytes);
    return values.natural(values.root);
  };
  EXPECT_EQ(natural("K\xFF"s), 255U);
  EXPECT_EQ(natural("M\x01\x02"s), 513U);
  EXPECT_EQ(natural("J\xFF\xFF\xFF\x7F"s), 2147483647U);
  EXPECT_EQ(natural("J\xFF\xFF\xFF\xFF"s), std::nullopt) << "-1";
  EXPECT_EQ(natural("\x8A\x00"s), 0U);
  EXPECT_EQ(natural("\x8A\x06\x00\x00\x00\x00\x00\x7F"s), 0x7F0000000000U);
  EXPECT_EQ(natural("\x8A\x01\xFF"s), std::nullopt);
  EXPECT_EQ(natural("\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x00"s), UINT64_MAX);
  EXPECT_EQ(natural("\x8B\x01\x00\x00\x00\x05"s), 5U);
  for (const auto& [opcodes, type] :
       {std::pair{"N"s, Type::nothing}, std::pair{"\x88"s, Type::boolean}, std::pair{"\x89"s, Type::boolean},
        std::pair{"G\0\0\0\0\0\0\0\0"s, Type::real}, std::pair{"C\x01z"s, Type::bytes}, std::pair{")"s, Type::list}}) {
    const std::string bytes = pickle(opcodes);
    const PlainValues values = read_pickle(bytes);
    EXPECT_EQ(values.type(values.root), type);
  }
}

TEST(Pickle, ReadsContainersAndWhatIsRemembered) {
  // {"a": ["x", "x", (1, 2)]}
  const std::string bytes = pickle(
      "}\x94(\x8C\x01"
      "a\x94]\x94(\x8C\x01x\x94h\x03K\x01K\x02\x86\x94"
      "eu"s);
  const PlainValues values = read_pickle(bytes);
  const auto list = values.member(values.root, "a");
  ASSERT_TRUE(list);
  ASSERT_EQ(values.elements(*list).size(), 3U);
  EXPECT_EQ(values.text(values.elements(*list)[1]), "x");
  EXPECT_EQ(values.elements(values.elements(*list)[2]).size(), 2U);
  EXPECT_EQ(values.member(values.root, "b"), std::nullopt);
}

TEST(Pickle, AListMayHoldItself) {
  const std::string bytes = pickle(
      "]\x94h\x00"
      "a"s);
  const PlainValues values = read_pickle(bytes);
  EXPECT_EQ(values.elements(values.root)[0], values.root);
}

TEST(Pickle, RefusesOpcodesThatStandForCode) {
  for (const auto& [opcode, name] :
       {std::pair{'c', "GLOBAL"}, std::pair{'R', "REDUCE"}, std::pair{'b', "BUILD"}, std::pair{'i', "INST"},
        std::pair{'o', "OBJ"}, std::pair{'P', "PERSID"}, std::pair{'Q', "BINPERSID"}, std::pair{'\x81', "NEWOBJ"},
        std::pair{'\x82', "EXT1"}, std::pair{'\x92', "NEWOBJ_EX"}, std::pair{'\x93', "STACK_GLOBAL"}})
    EXPECT_EQ(refusal_of(pickle("N"s + opcode)).find("at byte 3: the opcode "s + name + " stands for code"), 0U)
        << refusal_of(pickle("N"s + opcode));
  EXPECT_NE(refusal_of(sample("calls_code.pickle")).find("STACK_GLOBAL stands for code"), std::string::npos);
}

TEST(Pickle, EveryOpcodeIsEitherKnownOrRefused) {
  const std::string known = "NJKMGXCB(])}taseuqrhj.\x88\x89\x8A\x8B\x8C\x8D\x8E\x85\x86\x87\x94\x95";
  for (int code = 0; code < 256; ++code) {
    const char opcode = static_cast<char>(code);
    const std::string refused = refusal_of("\x80\x04"s + opcode);
    const bool unknown = refused.find("the opcode") != std::string::npos;
    EXPECT_EQ(unknown, known.find(opcode) == std::string::npos) << code << ": " << refused;
  }
}

TEST(Pickle, RefusesWhatNoPicklerWrites) {
  EXPECT_EQ(refusal_of(""), "at byte 0: 1 bytes are to follow, and 0 are left");
  EXPECT_EQ(refusal_of("{}"), "at byte 0: a pickle begins with its protocol");
  EXPECT_EQ(refusal_of("\x80\x01N."s), "at byte 0: protocol 1 is none of those that are read, which are 2 to 5");
  EXPECT_EQ(refusal_of("\x80\x06N."s), "at byte 0: protocol 6 is none of those that are read, which are 2 to 5");
  EXPECT_EQ(refusal_of("\x80\x05N."s), "nothing is refused");
  EXPECT_EQ(refusal_of(pickle("")), "at byte 2: the pickle ends with more or less than one value");
  EXPECT_EQ(refusal_of(pickle("NN")), "at byte 4: the pickle ends with more or less than one value");
  EXPECT_EQ(refusal_of(pickle("N(")), "at byte 4: the pickle ends with more or less than one value");
  EXPECT_EQ(refusal_of(pickle("N") + "N"), "at byte 3: 1 bytes follow the pickle's end");
  EXPECT_EQ(refusal_of(pickle("e")), "at byte 2: nothing is marked");
  EXPECT_EQ(refusal_of(pickle("(e")), "at byte 3: there is nothing that it could add to");
  EXPECT_EQ(refusal_of(pickle("N(Ne")), "at byte 5: it adds to nothing");
  EXPECT_EQ(refusal_of(pickle("}(Ne")), "at byte 5: it adds to an object");
  EXPECT_EQ(refusal_of(pickle("}(Nu")), "at byte 5: a key has no value");
  EXPECT_EQ(refusal_of(pickle("a")), "at byte 2: there are too few values for it");
  EXPECT_EQ(refusal_of(pickle("]a")), "at byte 3: there is nothing that it could add to");
  EXPECT_EQ(refusal_of(pickle("N(\x86")), "at byte 4: there are too few values for it");
  EXPECT_EQ(refusal_of(pickle("h\x00"s)), "at byte 2: no value 0 was remembered");
  EXPECT_EQ(refusal_of(pickle("\x94")), "at byte 2: there are too few values for it");
  EXPECT_EQ(refusal_of(pickle("Nq\x02h\x01"s)), "at byte 5: no value 1 was remembered");
  EXPECT_EQ(refusal_of(pickle("\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"s)),
            "at byte 2: an integer of more than 64 bits");
}

TEST(Pickle, HugeSizesTakeNoMemory) {
  const auto few = [](const std::string& opcodes) {
    const std::string refused = refusal_of("\x80\x04"s + opcodes);
    EXPECT_NE(refused.find("are left"), std::string::npos) << refused;
  };
  few("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  few("\x8E\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"s);
  few("X\xFF\xFF\xFF\xFF"s);
  few("B\xFF\xFF\xFF\xFF"s);
  few("\x8B\xFF\xFF\xFF\xFF"s);
  few("\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  EXPECT_EQ(refusal_of(pickle("Nr\xFF\xFF\xFF\xFF"s)),
            "at byte 3: no pickle of that length remembers as many as 4294967295 values");
  EXPECT_EQ(refusal_of(pickle("j\xFF\xFF\xFF\xFF"s)), "at byte 2: no value 4294967295 was remembered");
}

TEST(Pickle, DeepNestingTakesNoStack) {
  constexpr std::size_t deep = 1'000'000;
  const std::string lists = pickle(std::string(deep, ']') + std::string(deep - 1, 'a'));
  EXPECT_EQ(read_pickle(lists).count(), deep);
  const std::string tuples = pickle(std::string("N") + std::string(deep, '\x85'));
  EXPECT_EQ(read_pickle(tuples).count(), deep + 1);
  EXPECT_EQ(refusal_of(pickle(std::string(deep, '('))),
            "at byte 1000002: the pickle ends with more or less than one value");
}

TEST(Pickle, IsRefusedWhereverItIsCut) {
  for (const char* name : {"snapshot.pickle", "snapshot_protocol2.pickle"}) {
    const std::string whole = sample(name);
    ASSERT_FALSE(whole.empty());
    EXPECT_EQ(refusal_of(whole), "nothing is refused");
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_EQ(refusal_of(whole.substr(0, size)).find("at byte "), 0U) << name << " cut at " << size;
  }
}

// Whatever the bytes are, there is a value or a refusal.
TEST(Pickle, ChangedBytesDoNoHarm) {
  std::mt19937 random(1);
  const std::string whole = sample("snapshot.pickle");
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = whole;
    for (unsigned i = 0; i <= random() % 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    refused += refusal_of(changed) == "nothing is refused" ? 0 : 1;
  }
  EXPECT_GT(refused, 1000U);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = "\x80\x04"s;
    for (unsigned i = 0; i < random() % 40; ++i) bytes += static_cast<char>(random());
    static_cast<void>(refusal_of(bytes));
  }
}

}  // namespace
}  // namespace cuvmm::traces
