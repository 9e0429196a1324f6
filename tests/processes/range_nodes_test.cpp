// Ranges and handles that go from node to node of an emulated machine, and to another machine.
#include <array>
#include <filesystem>

#include "range_on_machine.hpp"

namespace cuvmm::sharing {
namespace {

using namespace tests;

constexpr HandleTypes by_descriptor = HandleType::posix_file_descriptor;
constexpr HandleTypes by_fabric = HandleType::fabric;
const std::string content = "from node 0";

class RangesBetweenNodes : public testing::Test {
 protected:
  [[nodiscard]] std::string on_node(int node) const { return machine_.settings() + ",node=" + std::to_string(node); }
  [[nodiscard]] SocketAddress address() const { return SocketAddress::at_path(machine_.scratch("published") + "/one"); }
  [[nodiscard]] std::string channel() const { return machine_.path() + "/imex-channels/channel0"; }

  [[nodiscard]] ChildProcess publisher(const MemoryProperties& memory) {
    return ChildProcess([this, memory] {
      use_machine(on_node(0));
      return publish_range(address(), memory, content, *stage_.operator->());
    });
  }
  // Reads what is published, and stores something else.
  [[nodiscard]] ChildProcess attacher(int node) {
    return ChildProcess([this, node] {
      use_machine(on_node(node));
      return with_range(address(),
                        [](AttachedRange& attached) {
                          if (text_in(attached, content.size()) != content) return 1;
                          copy_to_device(attached.range(), 0, std::string("stored"));
                          const bool stored = text_in(attached, content.size()) == "stored" + content.substr(6);
                          copy_to_device(attached.range(), 0, content);
                          return stored ? 0 : 2;
                        },
                        {.device = DeviceOrdinal(0), .rights = AccessRights::read_write});
    });
  }
  int refused(const std::string& settings, ErrorKind kind, const std::vector<std::string>& words) {
    return ChildProcess([&] {
             use_machine(settings);
             return refused_as(address(), kind, words);
           })
        .wait();
  }
  void finish(ChildProcess& publisher) {
    stage_->go_on = true;
    EXPECT_EQ(publisher.wait(), 0);
  }

  Machine machine_{"profile=gb200,memory=2GiB,nodes=2"};
  SharedState<RangeStage> stage_;
};

TEST_F(RangesBetweenNodes, GoByFabricHandlesWhereTheMemoryHasThemAndByDescriptorsWithinANode) {
  ChildProcess published = publisher({.handle_types = by_descriptor | by_fabric});
  EXPECT_EQ(attacher(1).wait(), 0);
  EXPECT_EQ(attacher(0).wait(), 0);
  // Without the channel there is nothing between nodes; within one nothing has changed.
  std::filesystem::rename(channel(), channel() + "-taken-away");
  EXPECT_EQ(refused(on_node(1), ErrorKind::not_permitted, {"fabric handles"}), 0);
  EXPECT_EQ(attacher(0).wait(), 0);
  std::filesystem::rename(channel() + "-taken-away", channel());
  finish(published);
}

TEST_F(RangesBetweenNodes, C19_DescriptorsAreRefusedUpFrontAndBothNodesAreNamed) {
  ChildProcess published = publisher({.handle_types = by_descriptor});
  EXPECT_EQ(refused(on_node(1), ErrorKind::not_supported, {"node 0", "node 1", "HandleType::fabric"}), 0);
  EXPECT_EQ(attacher(0).wait(), 0) << "within the node it is the same range";
  finish(published);
}

TEST_F(RangesBetweenNodes, C19_AnotherMachineIsRefusedWhateverTheHandles) {
  const Machine other("profile=gb200,memory=2GiB,nodes=2");
  ChildProcess published = publisher({.handle_types = by_descriptor | by_fabric});
  EXPECT_EQ(refused(other.settings(), ErrorKind::not_supported, {"emulated machine", "CUVMM_EMULATOR"}), 0);
  EXPECT_EQ(refused("profile=gb200", ErrorKind::not_supported, {"emulated machine private"}), 0);
  EXPECT_EQ(attacher(1).wait(), 0);
  finish(published);
}

TEST_F(RangesBetweenNodes, GrowthIsFollowedAndBytesOutliveThePublisher) {
  SharedState<std::atomic<int>> attached_bytes;
  ChildProcess published([&] {
    use_machine(on_node(0));
    return publish_range(address(), {.handle_types = by_descriptor | by_fabric}, content, *stage_.operator->(),
                         [&](MappedRange& range, PublishedRange& offered) {
                           range.append(2_MiB);
                           copy_to_device(range, 2_MiB, content);
                           offered.update(range);
                           for (;;) ::pause();
                         });
  });
  ChildProcess other([&] {
    use_machine(on_node(1));
    return with_range(address(),
                      [&](AttachedRange& attached) {
                        attached_bytes->store(2);
                        if (!attached.wait(soon()).grown || attached.follow(soon()) != 4_MiB) return 1;
                        attached_bytes->store(4);
                        if (!attached.wait(soon()).publisher_gone) return 2;
                        std::string bytes(content.size(), ' ');
                        copy_from_device(bytes, attached.range(), 2_MiB);
                        return bytes == content && text_in(attached, content.size()) == content ? 0 : 3;
                      },
                      {.device = DeviceOrdinal(0), .capacity = 8_MiB});
  });
  wait_until([&] { return attached_bytes->load() == 2; });
  stage_->go_on = true;
  wait_until([&] { return attached_bytes->load() == 4; });
  published.kill();
  EXPECT_EQ(other.wait(), 0);
  std::filesystem::remove(address().name());  // of the killed one
}

// What is appended may have been made otherwise than what was there.
TEST_F(RangesBetweenNodes, GrowthWithoutFabricHandlesIsRefusedThereAndWhatIsMappedStays) {
  SharedState<std::atomic<int>> attached_bytes;
  ChildProcess published([&] {
    use_machine(on_node(0));
    return publish_range(
        address(), {.handle_types = by_descriptor | by_fabric}, content, *stage_.operator->(),
        [&](MappedRange& range, PublishedRange& offered) {
          const MemoryProperties properties{.handle_types = by_descriptor};
          range.append(SharedPhysicalMemory(PhysicalMemory::create(range.driver(), properties, 2_MiB)));
          offered.update(range);
          wait_until([&] { return attached_bytes->load() == 4; });
        });
  });
  ChildProcess other([&] {
    use_machine(on_node(1));
    return with_range(address(),
                      [&](AttachedRange& attached) {
                        attached_bytes->store(2);
                        if (!attached.wait(soon()).grown) return 1;
                        const auto followed = attached.try_follow(soon());
                        const bool refused = !followed && followed.failure().kind == ErrorKind::not_supported;
                        const bool stays = attached.size() == 2_MiB && text_in(attached, content.size()) == content;
                        attached_bytes->store(4);
                        return refused && stays ? 0 : 2;
                      },
                      {.device = DeviceOrdinal(0), .capacity = 8_MiB});
  });
  wait_until([&] { return attached_bytes->load() == 2; });
  stage_->go_on = true;
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(published.wait(), 0);
}

TEST_F(RangesBetweenNodes, DevicesOfEachNodeHaveIdentitiesOfTheirOwn) {
  SharedState<std::array<std::array<std::byte, 16>, 2>> identities;
  for (const int node : {0, 1}) {
    ChildProcess asks([&] {
      use_machine(on_node(node));
      (*identities.operator->())[static_cast<std::size_t>(node)] = Driver::emulated().device(DeviceOrdinal(0)).uuid();
      return 0;
    });
    EXPECT_EQ(asks.wait(), 0);
  }
  EXPECT_NE((*identities.operator->())[0], (*identities.operator->())[1]);
}

// Extended GPU memory: the host's, with fabric handles.
TEST_F(RangesBetweenNodes, HostMemoryGoesByFabricHandleToAnotherProcessAndAnotherNode) {
  ChildProcess published = publisher({.location = Location::host_numa(0), .handle_types = by_fabric});
  EXPECT_EQ(attacher(0).wait(), 0);
  EXPECT_EQ(attacher(1).wait(), 0);
  std::filesystem::rename(channel(), channel() + "-taken-away");
  for (const int node : {0, 1}) EXPECT_EQ(refused(on_node(node), ErrorKind::not_permitted, {"fabric handles"}), 0);
  std::filesystem::rename(channel() + "-taken-away", channel());
  EXPECT_EQ(attacher(1).wait(), 0);
  finish(published);
}

// A machine whose driver announces fabric handles and has no channel.
TEST(RangesWithoutChannel, C28_FallBackToDescriptorsWhichReachNoOtherNode) {
  const Machine machine("memory=2GiB,nodes=2");
  const SocketAddress address = SocketAddress::at_path(machine.scratch("published") + "/one");
  SharedState<RangeStage> stage;
  ChildProcess published([&] {
    use_machine(machine.settings());
    return publish_range(address, {.handle_types = by_descriptor | by_fabric}, content, *stage.operator->());
  });
  ChildProcess refused([&] {
    use_machine(machine.settings() + ",node=1");
    return refused_as(address, ErrorKind::not_supported, {"node 0", "node 1"});
  });
  EXPECT_EQ(refused.wait(), 0);
  ChildProcess attached([&] {
    use_machine(machine.settings());
    return with_range(address, [](AttachedRange& range) { return text_in(range, content.size()) == content ? 0 : 1; });
  });
  EXPECT_EQ(attached.wait(), 0);
  stage->go_on = true;
  EXPECT_EQ(published.wait(), 0);
}

// Handles by themselves, over a connection whose ends have told their nodes.
class HandlesBetweenNodes : public RangesBetweenNodes {
 protected:
  // Exports what the peer can import, sends it, and stays until the peer has gone.
  int send(HandleTypes types) const {
    use_machine(on_node(0));
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = MappedRange::create(driver, {.capacity = 2_MiB, .memory = {.handle_types = types}});
    range.append(2_MiB);
    copy_to_device(range, 0, content);
    auto listener = DescriptorListener::listen(address(), {.connection = {.locality = Locality::of(driver)}}, soon());
    auto socket = listener.accept(soon());
    const PhysicalMemory& memory = range.memory_at(0).memory();
    auto handle = try_export_for(socket, memory);
    const Failure none;
    if (!handle) {
      if (handle.failure().kind != ErrorKind::not_supported) return 1;
      // Whoever exports all the same is stopped before anything is sent.
      std::vector<HandleOfMemory> wrong;
      wrong.push_back({ShareableHandle::export_from(memory, HandleType::posix_file_descriptor), memory.size()});
      const auto sent = try_send_handles(socket, wrong, soon());
      return !sent && sent.failure().kind == ErrorKind::not_supported ? 10 : 2;
    }
    std::vector<HandleOfMemory> handles;
    const HandleType type = handle->type();
    handles.push_back({std::move(handle).value(), memory.size()});
    send_handles(socket, handles, soon());
    static_cast<void>(socket.try_receive(soon()));
    return type == HandleType::fabric ? 20 : 30;
  }
  int receive(int node) const {
    use_machine(on_node(node));
    const Driver driver = Driver::emulated();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto socket =
        DescriptorSocket::connect(address(), {.locality = Locality::of(driver), .wait_for_listener = true}, soon());
    const auto handles = try_receive_handles(socket, soon());
    if (!handles) return handles.failure().kind == ErrorKind::peer_gone ? 10 : 1;
    auto range = MappedRange::create(
        driver, {.capacity = 2_MiB, .grants = {{Location::device(DeviceOrdinal(0)), AccessRights::read_write}}});
    range.append(SharedPhysicalMemory(handles->front().handle.import_into(driver, {.bytes = 2_MiB})));
    std::string bytes(content.size(), ' ');
    copy_from_device(bytes, range, 0);
    return bytes == content ? 0 : 2;
  }
  // What the sender and the receiver answered.
  std::pair<int, int> exchange(HandleTypes types, int node) {
    ChildProcess sender([&] { return send(types); });
    ChildProcess receiver([&] { return receive(node); });
    const int received = receiver.wait();
    return {sender.wait(), received};
  }
};

TEST_F(HandlesBetweenNodes, AreOfTheTypeThatReachesThePeer) {
  EXPECT_EQ(exchange(by_descriptor | by_fabric, 0), std::pair(30, 0)) << "a descriptor";
  EXPECT_EQ(exchange(by_descriptor | by_fabric, 1), std::pair(20, 0)) << "a fabric handle";
  EXPECT_EQ(exchange(by_fabric, 0), std::pair(20, 0)) << "there is no other";
}

TEST_F(HandlesBetweenNodes, C19_DescriptorsAreRefusedBeforeTheyAreSent) {
  EXPECT_EQ(exchange(by_descriptor, 1), std::pair(10, 10));
  EXPECT_EQ(exchange(by_descriptor, 0), std::pair(30, 0));
}

}  // namespace
}  // namespace cuvmm::sharing
