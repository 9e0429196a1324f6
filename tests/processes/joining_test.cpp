// Which machine a process is on, and what that is made of.
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

#include "emulator/broker/packet.hpp"
#include "emulator/broker/protocol.hpp"
#include "machine.hpp"

namespace cuvmm::tests {
namespace {

TEST(Joining, TakesWhatTheMachineHasWhereNothingElseIsAsked) {
  const Machine machine("devices=3,memory=2GiB,profile=gb200");
  Actor first(machine);
  const auto all = first.init().free_bytes();
  Actor later(machine, "machine=" + machine.path());
  EXPECT_EQ(later.init().done("devices").number(), 3U);
  EXPECT_EQ(later.free_bytes(), all);
  EXPECT_EQ(later.ask("create 2097152 8").code, CUDA_SUCCESS) << "it has the profile's IMEX channel";
}

TEST(Joining, KeepsTheBehaviourThatIsTheProcesssOwn) {
  const Machine machine("profile=gb200");
  Actor first(machine);
  first.init();
  Actor later(machine, "fabric-creation-out-of-memory,machine=" + machine.path());
  EXPECT_EQ(later.init().ask("create 2097152 8").code, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(first.ask("create 2097152 8").code, CUDA_SUCCESS);
}

TEST(Joining, RefusesSettingsThatContradictTheMachine) {
  const Machine machine("devices=2,memory=2GiB,profile=h200-580,nodes=2,imex-channels=1");
  Actor first(machine);
  first.init();
  const std::string place = "machine=" + machine.path();
  struct Contradiction {
    std::string settings, mended, ours, theirs;
  };
  const Contradiction contradictions[] = {
      {"devices=3", "devices=2", "devices is 3", "devices=2"},
      {"memory=3GiB", "memory=2GiB", "memory is 3221225472", "memory=2147483648"},
      {"profile=gb200", "profile=h200-580", "profile is gb200", "profile=h200-580"},
      {"nodes=3", "nodes=2", "nodes is 3", "nodes=2"},
      {"imex-channels=2", "imex-channels=1", "imex-channels is 2", "imex-channels=1"},
      {"node=2,nodes=3", "node=1,nodes=2", "node is 2", "nodes=2"},
  };
  for (const auto& [settings, mended, ours, theirs] : contradictions) {
    Actor refused(machine, place + "," + settings);
    const auto reply = refused.ask("init");
    EXPECT_EQ(reply.code, -1) << settings;
    EXPECT_NE(reply.text.find(ours), std::string::npos) << reply.text;
    EXPECT_NE(reply.text.find(theirs), std::string::npos) << reply.text;
    EXPECT_NE(reply.text.find(machine.path()), std::string::npos) << reply.text;
    Actor accepted(machine, place + "," + mended);
    EXPECT_EQ(accepted.ask("init").code, CUDA_SUCCESS) << mended;
  }
}

TEST(Joining, SettingsOfCuvmmEmulateCountLeast) {
  const Machine machine;
  const std::string made = "machine=" + machine.path() + ",node=0,nodes=2,devices=2,profile=gb200";
  Actor first(machine, "mode=strict", {"CUVMM_EMULATOR_MACHINE=" + made});
  EXPECT_EQ(first.init().done("devices").number(), 2U);
  Actor second(machine, "node=1", {"CUVMM_EMULATOR_MACHINE=" + made});
  const auto handle = first.create(fabric);
  EXPECT_EQ(second.init().ask("import-fabric " + first.export_fabric(handle)).code, CUDA_SUCCESS);
  const FileDescriptor exported = first.export_descriptor(first.create(descriptors));
  EXPECT_EQ(second.ask("import", exported.get()).code, CUDA_ERROR_UNKNOWN) << "it is on the other node";
}

TEST(Joining, OfAPrivateMachineSharesNothing) {
  const Machine machine;
  Actor one(machine, "machine=private"), other(machine);
  const auto handle = one.init().create(descriptors);
  other.init();
  EXPECT_EQ(other.ask("import", one.export_descriptor(handle).get()).code, CUDA_ERROR_UNKNOWN);
}

TEST(Joining, WithoutANameIsByUserAndConfiguration) {
  const Machine machine;  // for its directory
  const std::string runtime = "XDG_RUNTIME_DIR=" + machine.scratch("runtime");
  ASSERT_TRUE(std::filesystem::create_directory(machine.scratch("runtime")));
  Actor one(machine, "mode=strict,devices=2", {runtime}), alike(machine, "devices=2", {runtime});
  Actor different(machine, "devices=3", {runtime}), named(machine, "machine=mine,devices=2", {runtime});
  FileDescriptor exported = one.init().export_descriptor(one.create(descriptors));
  EXPECT_EQ(alike.init().ask("import", exported.get()).code, CUDA_SUCCESS);
  EXPECT_EQ(different.init().ask("import", exported.get()).code, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(named.init().ask("import", exported.get()).code, CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(std::filesystem::exists(machine.scratch("runtime") + "/cuvmm/mine/socket"));
  for (Actor* const actor : {&one, &alike, &different, &named}) actor->end();
  exported = FileDescriptor();
  EXPECT_TRUE(becomes_true([&] { return std::filesystem::is_empty(machine.scratch("runtime") + "/cuvmm"); }));
}

TEST(Joining, RefusesADirectoryThatOthersMayEnter) {
  const Machine machine;
  ASSERT_EQ(::mkdir(machine.path().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(machine.path().c_str(), 0755), 0);
  Actor refused(machine);
  const auto reply = refused.ask("init");
  EXPECT_EQ(reply.code, -1);
  EXPECT_NE(reply.text.find("mode 755"), std::string::npos) << reply.text;
  ASSERT_EQ(::chmod(machine.path().c_str(), 0700), 0);
  EXPECT_EQ(refused.ask("init").code, CUDA_SUCCESS);
}

TEST(Joining, RefusesWhatIsNoDirectory) {
  const Machine machine;
  ASSERT_EQ(::symlink(machine.scratch("elsewhere").c_str(), machine.path().c_str()), 0);
  ASSERT_EQ(::mkdir(machine.scratch("elsewhere").c_str(), 0700), 0);
  Actor refused(machine);
  EXPECT_EQ(refused.ask("init").code, -1) << "a link may lead to somebody else's";
  ASSERT_EQ(::unlink(machine.path().c_str()), 0);
  EXPECT_EQ(refused.ask("init").code, CUDA_SUCCESS);
}

TEST(Joining, SaysWhatIsMissingWhereThereIsNoBroker) {
  const Machine machine;
  Actor one(machine, {}, {"CUVMM_EMULATOR_BROKER=/no/such/program"});
  const auto reply = one.ask("init");
  EXPECT_EQ(reply.code, -1);
  EXPECT_NE(reply.text.find("/no/such/program"), std::string::npos) << reply.text;
  EXPECT_FALSE(std::filesystem::exists(machine.path())) << "nothing is left of the attempt";
  Actor failing(machine, {}, {"CUVMM_EMULATOR_BROKER=/bin/false"});
  EXPECT_EQ(failing.ask("init").code, -1) << "a program that ends at once";
  EXPECT_FALSE(std::filesystem::exists(machine.path())) << "nothing is left of the attempt";
  Actor other(machine);
  EXPECT_EQ(other.ask("init").code, CUDA_SUCCESS);
}

TEST(Joining, GivesUpAProgramThatDoesNotBecomeABroker) {
  const Machine machine;
  const std::string settings = machine.settings() + ",broker-patience=1";
  Actor refused(machine, settings, {"CUVMM_EMULATOR_BROKER=/usr/bin/yes"});
  const auto reply = refused.ask("init");
  EXPECT_EQ(reply.code, -1);
  for (const std::string& part :
       {std::string("/usr/bin/yes"), machine.path() + "/socket", std::string("broker-patience")})
    EXPECT_NE(reply.text.find(part), std::string::npos) << reply.text;
  EXPECT_FALSE(std::filesystem::exists(machine.path())) << "nothing is left of the attempt";
  Actor accepted(machine, machine.settings() + ",broker-patience=60");
  EXPECT_EQ(accepted.ask("init").code, CUDA_SUCCESS);
}

TEST(Joining, GivesUpABrokerThatDoesNotAnswer) {
  const Machine machine;
  Actor first(machine), waiting(machine, machine.settings() + ",broker-patience=1");
  first.init();
  waiting.init();
  const pid_t broker = machine.broker();
  ::kill(broker, SIGSTOP);
  EXPECT_EQ(waiting.ask("create 2097152 0").code, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_NE(waiting.errors().find(machine.path() + "/socket"), std::string::npos) << waiting.errors();
  Actor later(machine, machine.settings() + ",broker-patience=1");
  const auto reply = later.ask("init");
  EXPECT_EQ(reply.code, -1);
  EXPECT_NE(reply.text.find("did not answer within 1000 ms"), std::string::npos) << reply.text;
  ::kill(broker, SIGCONT);
  EXPECT_EQ(first.ask("create 2097152 0").code, CUDA_SUCCESS);
}

// A broker that answers as one of that version would: whatever it is asked, with a refusal.
class BrokerOfVersion {
 public:
  BrokerOfVersion(const Machine& machine, std::uint8_t version) : directory_(machine.path()), version_(version) {
    EXPECT_EQ(::mkdir(directory_.c_str(), 0700), 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (directory_ + "/socket").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
  }
  BrokerOfVersion(const BrokerOfVersion&) = delete;
  BrokerOfVersion& operator=(const BrokerOfVersion&) = delete;
  ~BrokerOfVersion() { std::filesystem::remove_all(directory_); }

  void answer_one() const {
    using namespace emulator::broker;
    const FileDescriptor guest(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    pollfd asks{guest.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&asks, 1, 120'000), 1);
    EXPECT_EQ(receive_packet(guest.get()).fate, Packet::Fate::arrived);
    auto answer = encode(Reply(Refused{}));
    answer.at(4) = std::byte{version_};
    EXPECT_EQ(send_packet(guest.get(), answer, -1), 0);
  }

 private:
  const std::string directory_;
  const std::uint8_t version_;
  FileDescriptor socket_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
};

TEST(Joining, NamesBothVersionsWhereTheBrokerIsOfAnother) {
  const Machine machine;
  constexpr std::uint8_t ours = emulator::broker::protocol_version;
  for (const std::uint8_t theirs : {std::uint8_t{ours - 1}, std::uint8_t{ours + 1}}) {
    const BrokerOfVersion broker(machine, theirs);
    Actor refused(machine);
    refused.tell("init");
    broker.answer_one();
    const auto reply = refused.answer();
    EXPECT_EQ(reply.code, -1);
    for (const std::string& part :
         {machine.path(), "process " + std::to_string(::getpid()), "version " + std::to_string(theirs),
          "version " + std::to_string(ours), std::string("machine=NAME")})
      EXPECT_NE(reply.text.find(part), std::string::npos) << part << " in: " << reply.text;
  }
  Actor accepted(machine);
  EXPECT_EQ(accepted.ask("init").code, CUDA_SUCCESS) << "by a broker of its own";
}

TEST(Joining, NamesTheLimitOfDescriptorsAndLeavesNothing) {
  const Machine machine;
  for (const int limit : {5, 6, 7, 8}) {
    Actor refused(machine);
    rlimit few{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
    ASSERT_EQ(::prlimit(refused.process(), RLIMIT_NOFILE, &few, nullptr), 0);
    const auto reply = refused.ask("init");
    EXPECT_EQ(reply.code, -1) << limit;
    EXPECT_NE(reply.text.find("RLIMIT_NOFILE"), std::string::npos) << limit << reply.text;
    EXPECT_FALSE(std::filesystem::exists(machine.path())) << limit;
  }
  Actor accepted(machine);
  EXPECT_EQ(accepted.ask("init").code, CUDA_SUCCESS);
}

TEST(Joining, WorksFromALongPath) {
  const Machine machine;
  const std::string longer = machine.scratch(std::string(120, 'x'));
  Actor one(machine, "machine=" + longer), other(machine, "machine=" + longer);
  FileDescriptor exported = one.init().export_descriptor(one.create(descriptors));
  EXPECT_EQ(other.init().ask("import", exported.get()).code, CUDA_SUCCESS);
  one.end();
  other.end();
  exported = FileDescriptor();
  EXPECT_TRUE(becomes_true([&] { return !std::filesystem::exists(longer); }));
}

}  // namespace
}  // namespace cuvmm::tests
