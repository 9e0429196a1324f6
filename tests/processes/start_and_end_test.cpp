// How a machine comes into being, and how it ends.
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <memory>

#include "machine.hpp"

namespace cuvmm::tests {
namespace {

TEST(StartAndEnd, HappenByThemselvesAndLeaveNothing) {
  const Machine machine;
  for (int round = 0; round < 5; ++round) {
    Actor one(machine);
    one.init();
    EXPECT_TRUE(std::filesystem::exists(machine.path() + "/socket"));
    EXPECT_EQ(brokers_of(machine.path()).size(), 1U);
    one.end();
    EXPECT_TRUE(machine.ends());
  }
}

TEST(StartAndEnd, OfManyAtOnceMakeOneMachine) {
  const Machine machine;
  for (int round = 0; round < 5; ++round) {
    constexpr int count = 8;
    std::vector<std::unique_ptr<Actor>> actors;
    for (int index = 0; index < count; ++index) actors.push_back(std::make_unique<Actor>(machine));
    for (const auto& actor : actors) actor->tell("init");
    for (const auto& actor : actors) EXPECT_EQ(actor->answer().code, CUDA_SUCCESS) << actor->errors();
    EXPECT_GT(machine.broker(), 0);
    const auto all = actors.front()->free_bytes();
    for (const auto& actor : actors) (void)actor->create(0);
    EXPECT_EQ(actors.front()->free_bytes(), all - count * chunk);
  }
}

// One comes while the last one goes, again and again: it is on the old machine or on a new one, but always on one.
TEST(StartAndEnd, MayCoincide) {
  const Machine machine;
  auto before = std::make_unique<Actor>(machine);
  before->init();
  for (int round = 0; round < 30; ++round) {
    auto next = std::make_unique<Actor>(machine);
    next->tell("init");
    before->end();
    EXPECT_EQ(next->answer().code, CUDA_SUCCESS) << next->errors();
    (void)next->create(0);
    before = std::move(next);
  }
}

TEST(StartAndEnd, AreNoBusinessOfTheProgramsChildrenAndTerminal) {
  const Machine machine;
  Actor one(machine);
  one.init();
  const std::string children =
      "/proc/" + std::to_string(one.process()) + "/task/" + std::to_string(one.process()) + "/children";
  EXPECT_EQ(content_of_file(children), "");
  EXPECT_NE(::getsid(machine.broker()), ::getsid(one.process()));
}

TEST(StartAndEnd, GiveTheBrokerNoneOfTheProgramsDescriptors) {
  const Machine machine;
  Actor keeps_the_machine(machine);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // no close-on-exec: the process that starts the broker has it, too
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  Actor starts_the_machine(machine);
  starts_the_machine.init();
  keeps_the_machine.init();
  write_end = FileDescriptor();
  starts_the_machine.kill();
  EXPECT_TRUE(becomes_true([&] {
    pollfd end{read_end.get(), 0, 0};
    return ::poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
  })) << "nobody has the other end";
}

TEST(StartAndEnd, SurviveASocketThatAKilledBrokerLeft) {
  const Machine machine;
  {
    Actor one(machine);
    one.init();
    const pid_t broker = machine.broker();
    ASSERT_EQ(::kill(broker, SIGKILL), 0);
    ASSERT_TRUE(becomes_true([&] { return brokers_of(machine.path()).empty(); }));
  }
  ASSERT_TRUE(std::filesystem::exists(machine.path() + "/socket"));
  Actor next(machine);
  EXPECT_EQ(next.init().read(next.map(next.create(0))), 0);
}

TEST(StartAndEnd, SurviveWhatElseLiesInTheDirectory) {
  const Machine machine;
  ASSERT_EQ(::mkdir(machine.path().c_str(), 0700), 0);
  std::ofstream(machine.path() + "/socket") << "no socket";
  std::ofstream(machine.path() + "/lock") << "somebody was here";
  ASSERT_EQ(::mkdir((machine.path() + "/imex-channels").c_str(), 0700), 0);
  std::ofstream(machine.path() + "/imex-channels/channel7") << "old";
  Actor one(machine, machine.settings() + ",profile=gb200");
  EXPECT_EQ(one.init().ask("create 2097152 8").code, CUDA_SUCCESS);
  EXPECT_FALSE(std::filesystem::exists(machine.path() + "/imex-channels/channel7"));
}

TEST(StartAndEnd, WaitForWhoHasTheLock) {
  const Machine machine;
  ASSERT_EQ(::mkdir(machine.path().c_str(), 0700), 0);
  FileDescriptor lock(::open((machine.path() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  Actor one(machine);
  one.tell("init");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(brokers_of(machine.path()).empty());
  lock = FileDescriptor();
  EXPECT_EQ(one.answer().code, CUDA_SUCCESS);
}

TEST(LostMachine, IsToldOnceAndAnsweredByACode) {
  const Machine machine;
  Actor one(machine);
  one.init();
  const auto handle = one.create(descriptors);
  const auto address = one.map(handle);
  one.write(address, 3);
  ASSERT_EQ(::kill(machine.broker(), SIGKILL), 0);
  ASSERT_TRUE(becomes_true([&] { return brokers_of(machine.path()).empty(); }));
  EXPECT_EQ(one.ask("create 2097152 0").code, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_NE(one.ask("explain").text.find("is lost"), std::string::npos);
  EXPECT_EQ(one.ask("info").code, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(one.ask("export " + std::to_string(handle)).code, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(one.ask("alloc 10").code, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(one.read(address), 3) << "what it has it keeps";
  one.unmap(address);
  one.release(handle);
  const std::string errors = one.errors();
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  EXPECT_NE(errors.find("is lost: its broker has ended"), std::string::npos) << errors;

  Actor next(machine);
  EXPECT_EQ(next.init().ask("create 2097152 0").code, CUDA_SUCCESS) << "others make the machine anew";
}

}  // namespace
}  // namespace cuvmm::tests
