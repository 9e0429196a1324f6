// What is left of processes that are gone.
#include "machine.hpp"

namespace cuvmm::tests {
namespace {

TEST(Death, GivesEverythingBack) {
  const Machine machine;
  Actor survivor(machine);
  const auto all = survivor.init().free_bytes();
  for (const bool killed : {true, false}) {
    Actor victim(machine);
    victim.init();
    const auto handle = victim.create(descriptors, 8 * chunk);
    victim.write(victim.map(handle, 8 * chunk), 1, chunk);
    (void)victim.done("alloc 100");
    (void)victim.export_descriptor(handle);
    EXPECT_EQ(survivor.free_bytes(), all - 9 * chunk);
    killed ? victim.kill() : victim.end();
    EXPECT_EQ(survivor.free_bytes(), all) << (killed ? "killed" : "ended");
  }
}

// Its children may have its descriptors, the connection among them.
TEST(Death, GivesEverythingBackThoughForkedChildrenLiveOn) {
  const Machine machine;
  Actor survivor(machine);
  const auto all = survivor.init().free_bytes();
  for (const std::string how : {"fork", "fork raw"}) {
    Actor victim(machine);
    victim.init();
    const auto address = victim.map(victim.create(descriptors));
    victim.write(address, 1);
    const auto child = victim.fork(how);
    EXPECT_EQ(survivor.free_bytes(), all - chunk);
    victim.kill();
    EXPECT_EQ(survivor.free_bytes(), all) << how;
    EXPECT_EQ(::kill(child, 0), 0) << "it lives";
    EXPECT_EQ(::kill(child, SIGKILL), 0);
  }
}

TEST(Death, LeavesTheImportersTheirMappingsAndBytes) {
  const Machine machine;
  Actor importer(machine);
  const auto all = importer.init().free_bytes();
  Actor exporter(machine);
  const auto handle = exporter.init().create(descriptors);
  exporter.write(exporter.map(handle), 77);
  const auto imported = importer.import(exporter.export_descriptor(handle));
  const auto mapped = importer.map(imported);
  EXPECT_EQ(importer.read(mapped), 77);
  exporter.kill();
  EXPECT_EQ(importer.read(mapped), 77);
  const auto again = importer.map(imported);
  importer.write(again, 78);
  EXPECT_EQ(importer.read(mapped), 78);
  EXPECT_EQ(importer.free_bytes(), all - chunk);
}

TEST(Death, LeavesMemoryToDescriptorsOnTheirWay) {
  const Machine machine;
  Actor importer(machine);
  const auto all = importer.init().free_bytes();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor outgoing(ends[0]), incoming(ends[1]);
  {
    Actor exporter(machine);
    const auto handle = exporter.init().create(descriptors);
    exporter.write(exporter.map(handle), 78);
    const FileDescriptor exported = exporter.export_descriptor(handle);
    ASSERT_TRUE(send_message(outgoing.get(), "x", exported.get()));
    exporter.kill();
  }
  EXPECT_EQ(importer.free_bytes(), all - chunk) << "nobody has it open, but it may be received";
  auto received = receive_message(incoming.get());
  ASSERT_TRUE(received);
  const auto imported = importer.import(received->descriptor);
  received->descriptor = FileDescriptor();
  EXPECT_EQ(importer.read(importer.map(imported)), 78);
}

TEST(Death, LeavesMemoryToDescriptorsThoughNoProcessIsOnTheMachine) {
  const Machine machine;
  FileDescriptor exported;
  {
    Actor exporter(machine);
    const auto handle = exporter.init().create(descriptors);
    exporter.write(exporter.map(handle), 5);
    exported = exporter.export_descriptor(handle);
    exporter.kill();
  }
  Actor importer(machine);
  EXPECT_EQ(importer.init().read(importer.map(importer.import(exported))), 5);
  exported = FileDescriptor();
}

TEST(Death, OfADescriptorsLastCopyGivesItsMemoryBack) {
  const Machine machine;
  Actor one(machine);
  const auto all = one.init().free_bytes();
  const auto handle = one.create(descriptors);
  FileDescriptor first = one.export_descriptor(handle);
  FileDescriptor copy(::dup(first.get()));
  one.release(handle);
  first = FileDescriptor();
  EXPECT_EQ(one.free_bytes(), all - chunk);
  copy = FileDescriptor();
  EXPECT_EQ(one.free_bytes(), all);
}

TEST(ForkedChild, HasNoConnection) {
  const auto sockets_of = [](pid_t process) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
      std::error_code closed;  // meanwhile
      count += std::filesystem::read_symlink(entry.path(), closed).string().starts_with("socket:") ? 1 : 0;
    }
    return count;
  };
  const Machine machine;
  Actor one(machine);
  one.init();
  EXPECT_EQ(sockets_of(one.process()), 2U) << "to the test and to the broker";
  const auto child = one.fork();
  EXPECT_TRUE(becomes_true([&] { return sockets_of(child) == 0; })) << "the one to the test it closes itself";
  EXPECT_EQ(::kill(child, SIGKILL), 0);
}

TEST(ForkedChild, CannotTouchMemoryThatIsSomebodyElsesLater) {
  const Machine machine;
  Actor one(machine);
  const auto address = one.init().map(one.done("create 2097152 1 3").number());
  (void)one.done("touch " + std::to_string(address) + " 5");
  EXPECT_EQ(one.ask("fork touch " + std::to_string(address)).code, SIGSEGV);
  EXPECT_EQ(one.read(address), 5);
}

}  // namespace
}  // namespace cuvmm::tests
