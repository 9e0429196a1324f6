// Machines of several nodes, and handles of the fabric.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "machine.hpp"

namespace cuvmm::tests {
namespace {

const std::string two_nodes = "profile=gb200,memory=2GiB,nodes=2";

struct Nodes {
  Machine machine{two_nodes};
  Actor first{machine};
  Actor second{machine, machine.settings() + ",node=1"};

  Nodes() {
    first.init();
    second.init();
  }
};

TEST(Nodes, HaveMemoryOfTheirOwn) {
  Nodes nodes;
  const auto all = nodes.first.free_bytes();
  (void)nodes.first.create(0, 4 * chunk);
  EXPECT_EQ(nodes.first.free_bytes(), all - 4 * chunk);
  EXPECT_EQ(nodes.second.free_bytes(), all);
  (void)nodes.second.create(0, all / chunk * chunk);
}

TEST(Nodes, ExchangeNoDescriptors) {
  Nodes nodes;
  Actor neighbour(nodes.machine);
  neighbour.init();
  const FileDescriptor exported = nodes.first.export_descriptor(nodes.first.create(descriptors));
  EXPECT_EQ(nodes.second.ask("import", exported.get()).code, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(neighbour.ask("import", exported.get()).code, CUDA_SUCCESS);
}

TEST(Nodes, ExchangeNoLegacyIpcHandles) {
  Nodes nodes;
  Actor neighbour(nodes.machine);
  neighbour.init();
  const std::string handle =
      nodes.first.done("ipc-get " + std::to_string(nodes.first.done("alloc 4096").number())).text;
  EXPECT_EQ(nodes.second.ask("ipc-open " + handle).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(neighbour.ask("ipc-open " + handle).code, CUDA_SUCCESS);
}

TEST(Nodes, ExchangeFabricHandles) {
  Nodes nodes;
  const auto all = nodes.first.free_bytes();
  const auto handle = nodes.first.create(fabric);
  const auto here = nodes.first.map(handle);
  nodes.first.write(here, 21);
  const std::string shareable = nodes.first.export_fabric(handle);
  const auto imported = nodes.second.done("import-fabric " + shareable).number();
  const auto there = nodes.second.map(imported);
  EXPECT_EQ(nodes.second.read(there), 21);
  nodes.second.write(there, 22);
  EXPECT_EQ(nodes.first.read(here), 22);
  EXPECT_EQ(nodes.second.free_bytes(), all) << "the memory is the first node's";
  nodes.first.kill();
  EXPECT_EQ(nodes.second.read(there), 22);
  EXPECT_EQ(nodes.second.done("import-fabric " + shareable).code, CUDA_SUCCESS) << "somebody has the memory";
}

TEST(Fabric, HandlesDoNotKeepMemory) {
  Nodes nodes;
  const auto all = nodes.first.free_bytes();
  const auto handle = nodes.first.create(fabric);
  const std::string shareable = nodes.first.export_fabric(handle);
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_SUCCESS);
  nodes.first.kill();
  nodes.second.kill();
  Actor later(nodes.machine);
  EXPECT_EQ(later.init().free_bytes(), all);
  EXPECT_EQ(later.ask("import-fabric " + shareable).code, CUDA_ERROR_INVALID_VALUE);
}

TEST(Fabric, RefusesHandlesThatWereNotExported) {
  Nodes nodes;
  Nodes others;
  const std::string shareable = nodes.first.export_fabric(nodes.first.create(fabric));
  (void)others.first.export_fabric(others.first.create(fabric));
  EXPECT_EQ(others.first.ask("import-fabric " + shareable).code, CUDA_ERROR_INVALID_VALUE) << "of another machine";
  EXPECT_EQ(nodes.second.ask("import-fabric " + std::string(128, '0')).code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(nodes.first.ask("export-fabric " + std::to_string(nodes.first.create(descriptors))).code,
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_SUCCESS);
}

TEST(Channels, AreNeededByWhoMakesAndWhoImports) {
  Nodes nodes;
  const std::string shareable = nodes.first.export_fabric(nodes.first.create(fabric));
  const std::filesystem::path channels = nodes.machine.path() + "/imex-channels";
  const std::filesystem::path channel = channels / "channel0";
  ASSERT_TRUE(std::filesystem::exists(channel));
  std::filesystem::rename(channel, channels / "channel-taken-away");
  EXPECT_EQ(nodes.first.ask("create 2097152 8").code, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_NE(nodes.first.ask("explain").text.find("CREATE-FABRIC-IMEX"), std::string::npos);
  EXPECT_EQ(nodes.first.ask("create 2097152 9").code, CUDA_ERROR_NOT_PERMITTED) << "descriptors do not make up for it";
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(nodes.first.ask("create 2097152 1").code, CUDA_SUCCESS);
  std::filesystem::rename(channels / "channel-taken-away", channel);
  EXPECT_EQ(nodes.first.ask("create 2097152 8").code, CUDA_SUCCESS);
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_SUCCESS);
}

// Permissions do not bind a superuser, but whoever that becomes.
TEST(Channels, HaveOrdinaryPermissions) {
  Nodes nodes;
  const std::string shareable = nodes.first.export_fabric(nodes.first.create(fabric));
  const std::string channel = nodes.machine.path() + "/imex-channels/channel0";
  const bool superuser = ::geteuid() == 0;
  if (superuser) {
    (void)nodes.first.done("set-user 65534");
    (void)nodes.second.done("set-user 65534");
  }
  EXPECT_EQ(nodes.first.ask("create 2097152 8").code, CUDA_SUCCESS) << "at first everybody may";
  ASSERT_EQ(::chmod(channel.c_str(), 0444), 0);
  EXPECT_EQ(nodes.first.ask("create 2097152 8").code, CUDA_ERROR_NOT_PERMITTED) << "reading is not enough";
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_ERROR_NOT_PERMITTED);
  ASSERT_EQ(::chmod(channel.c_str(), 0666), 0);
  EXPECT_EQ(nodes.first.ask("create 2097152 8").code, CUDA_SUCCESS);
  EXPECT_EQ(nodes.second.ask("import-fabric " + shareable).code, CUDA_SUCCESS);
}

TEST(Channels, C28_AreThoseThatAreConfigured) {
  const std::pair<std::string, int> expected[] = {{"profile=gb200,imex-channels=0", CUDA_ERROR_NOT_PERMITTED},
                                                  {"profile=gb200", CUDA_SUCCESS},
                                                  {"profile=h200-580", CUDA_ERROR_NOT_PERMITTED},
                                                  {"profile=h200-580,imex-channels=2", CUDA_SUCCESS}};
  for (const auto& [settings, code] : expected) {
    const Machine machine(settings);
    Actor one(machine);
    EXPECT_EQ(one.init().ask("create 2097152 8").code, code) << settings;
  }
}

}  // namespace
}  // namespace cuvmm::tests
