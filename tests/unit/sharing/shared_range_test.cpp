// Ranges that are published and attached within one process, over connections as between two.
#include <fcntl.h>

#include "open_descriptors.hpp"
#include "sharing/shared_range_fixture.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::sharing {
namespace {

using namespace test;
using cuvmm::test::Alive;
using cuvmm::test::open_descriptors;
using cuvmm::test::strict_machine;
using test::SharedRange;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

TEST_F(SharedRange, AnEmptyRangeIsNotPublished) {
  auto range = MappedRange::create(machine_.driver(),
                                   {.capacity = 4_MiB, .memory = {.handle_types = HandleType::posix_file_descriptor}});
  const auto refused = publisher_.try_publish("range", range);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().way_out, "Append memory first");
  range.append(2_MiB);
  EXPECT_TRUE(publisher_.try_publish("range", range));
}

TEST_F(SharedRange, IsTheSameMemoryAtAnotherAddress) {
  auto range = new_range(3);
  copy_to_device(range, 4_MiB, std::string("written before"));
  const auto published = publisher_.publish("range", range);
  EXPECT_EQ(published.name(), "range");
  EXPECT_EQ(published.generation(), 1U);
  EXPECT_EQ(published.size(), 6_MiB);
  EXPECT_EQ(published.chunks(), 3U);
  const auto attached = attach();
  EXPECT_EQ(attached.name(), "range");
  EXPECT_EQ(attached.size(), 6_MiB);
  EXPECT_EQ(attached.generation(), 1U);
  EXPECT_EQ(attached.rights(), AccessRights::read);
  EXPECT_EQ(attached.publisher().process, ::getpid());
  EXPECT_EQ(attached.range().chunks().size(), 3U);
  EXPECT_NE(attached.address(), range.address());
  EXPECT_EQ(bytes_at(attached.range(), 4_MiB, 14), "written before");
  copy_to_device(range, 0, std::string("written after"));
  EXPECT_EQ(bytes_at(attached.range(), 0, 13), "written after");
  EXPECT_TRUE(is_attached(published, 3));
  EXPECT_EQ(published.attached().front().process, ::getpid());
  EXPECT_EQ(published.attached().front().user, ::geteuid());
}

TEST_F(SharedRange, C32_ReservesExactlyWhatIsThereUnlessMoreIsAskedFor) {
  auto range = new_range(3);  // which has 64 MiB of addresses
  const auto published = publisher_.publish("range", range);
  EXPECT_EQ(attach().capacity(), 6_MiB);
  machine_.calls();
  EXPECT_EQ(attach({.capacity = 16_MiB}).capacity(), 16_MiB);
  EXPECT_NE(machine_.calls().find("cuMemAddressReserve 1,"), std::string::npos) << "once";
}

// What it costs: nothing at the publisher, and at the other end one import and one map for each chunk, and one grant.
TEST_F(SharedRange, TakesOneGrantForAllChunksAndNoExport) {
  auto range = new_range(4);
  const auto published = publisher_.publish("range", range);
  machine_.calls();
  auto attached = attach();
  const std::string calls = machine_.calls();
  EXPECT_NE(calls.find("cuMemImportFromShareableHandle 4"), std::string::npos) << calls;
  EXPECT_NE(calls.find("cuMemMap 4"), std::string::npos) << calls;
  EXPECT_NE(calls.find("cuMemSetAccess 1"), std::string::npos) << calls;
  EXPECT_EQ(calls.find("cuMemExport"), std::string::npos) << calls;
  EXPECT_EQ(calls.find("cuMemGetAllocationPropertiesFromHandle"), std::string::npos) << calls;
}

TEST_F(SharedRange, GivesAllBackWhenItIsDetached) {
  auto range = new_range(3);
  const auto published = publisher_.publish("range", range);
  const std::size_t open = open_descriptors();
  const auto alive = machine_.alive();
  auto attached = attach();
  EXPECT_NE(machine_.alive(), alive);
  attached.detach();
  EXPECT_EQ(machine_.alive(), alive);
  EXPECT_TRUE(becomes_true([&] { return publisher_.connected() == 0; }));
  EXPECT_EQ(open_descriptors(), open);
  { const auto again = attach(); }
  EXPECT_EQ(machine_.alive(), alive) << "the destructor does the same";
  EXPECT_TRUE(becomes_true([&] { return published.attached().empty(); }));
}

TEST_F(SharedRange, IsGrantedAsAskedForAndOnTheDeviceAskedFor) {
  auto range = new_range(1);
  const auto published = publisher_.publish("range", range, {.rights = AccessRights::read_write});
  const auto reader = attach({.device = DeviceOrdinal(1)});
  EXPECT_EQ(machine_.rights(reader.address(), device1), AccessRights::read);
  EXPECT_EQ(machine_.rights(reader.address(), device0), AccessRights::none);
  const auto writer = attach({.rights = AccessRights::read_write});
  EXPECT_EQ(machine_.rights(writer.address(), device0), AccessRights::read_write);
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach({.device = DeviceOrdinal(2)}); });
}

TEST_F(SharedRange, MoreRightsThanAreOfferedAreNotPermitted) {
  auto range = new_range(1);
  const auto published = publisher_.publish("range", range);
  const auto failure =
      refusal_of(ErrorKind::not_permitted, [&] { return try_attach({.rights = AccessRights::read_write}); });
  EXPECT_NE(failure.message().find("read is offered"), std::string::npos) << failure.message();
  EXPECT_TRUE(try_attach({.rights = AccessRights::read}));
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach({.rights = AccessRights::none}); });
}

TEST_F(SharedRange, ANameThatIsNotPublishedIsRefused) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach({}, "another"); });
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach({}, ""); });
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach({}, std::string(256, 'n')); });
  // Whether the publisher ends before or after the chunks are asked for.
  for (int round = 0; round < 200; ++round)
    refusal_of(ErrorKind::invalid_use, [&] { return try_attach({}, "another"); });
  EXPECT_TRUE(try_attach());
}

TEST_F(SharedRange, WhatCannotBePublishedIsRefused) {
  auto range = new_range(2);
  const auto publish = [&](const std::string& name, const PublishOptions& options) {
    return publisher_.try_publish(name, range, options);
  };
  refusal_of(ErrorKind::invalid_use, [&] { return publish("", {}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish(std::string(256, 'n'), {}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.rights = AccessRights::none}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.offset = 4_MiB}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.offset = 2_MiB, .bytes = 2_MiB + 1}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.offset = 1_MiB}); });
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.bytes = 1_MiB}); });
  auto unexportable = new_range(1, {});
  const auto failure = refusal_of(ErrorKind::invalid_use, [&] { return publisher_.try_publish("n", unexportable); });
  EXPECT_NE(failure.message().find("handle_types"), std::string::npos) << failure.message();
  auto holes = new_range(1);
  holes.unmap(0, 2_MiB);
  refusal_of(ErrorKind::invalid_use, [&] { return publisher_.try_publish("n", holes); });
  EXPECT_NO_THROW(range.unmap(2_MiB, 2_MiB)) << "what was refused pins nothing";
  const auto published = publish("n", {.bytes = 2_MiB});
  EXPECT_TRUE(published);
  refusal_of(ErrorKind::invalid_use, [&] { return publish("n", {.bytes = 2_MiB}); });
}

TEST_F(SharedRange, APartIsPublishedWithItsOwnOffsets) {
  auto range = new_range(3);
  copy_to_device(range, 2_MiB, std::string("the second chunk"));
  const auto published = publisher_.publish("range", range, {.offset = 2_MiB, .bytes = 2_MiB});
  const auto attached = attach();
  EXPECT_EQ(attached.size(), 2_MiB);
  EXPECT_EQ(bytes_at(attached.range(), 0, 16), "the second chunk");
}

TEST_F(SharedRange, HolesAndAContentThatEndsInsideAChunkAreKept) {
  auto range = new_range(3);
  range.append(5);
  range.unmap(2_MiB, 2_MiB);
  const auto published = publisher_.publish("range", range);
  const auto attached = attach();
  EXPECT_EQ(attached.size(), 6_MiB + 5);
  const auto chunks = attached.range().chunks();
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[1].offset, 4_MiB);
  EXPECT_EQ(chunks[2].offset, 6_MiB);
  EXPECT_EQ(attached.capacity(), 8_MiB);
}

TEST_F(SharedRange, ChunksByTheHundredsComeInSeveralMessages) {
  auto range = MappedRange::create(machine_.driver(), {.capacity = 2_GiB, .memory = {.handle_types = descriptors}});
  const auto memory = range.source()->acquire({.handle_types = descriptors}, 2_MiB);
  for (int index = 0; index < 600; ++index) range.append(memory);
  copy_to_device(range, 0, std::string("behind all of them"));
  const auto published = publisher_.publish("range", range);
  const auto attached = attach();
  EXPECT_EQ(attached.range().chunks().size(), 600U);
  EXPECT_EQ(bytes_at(attached.range(), 1198_MiB, 18), "behind all of them");
}

TEST_F(SharedRange, FabricHandlesServeWhereThereIsNothingElse) {
  emulator::Configuration configuration = strict_machine();
  configuration.imex_channels = 1;
  RangeMachine machine(configuration);
  const CurrentContext context(machine.driver().device(DeviceOrdinal(0)));
  auto range =
      MappedRange::create(machine.driver(), {.capacity = 8_MiB, .memory = {.handle_types = HandleType::fabric}});
  range.append(2_MiB);
  copy_to_device(range, 0, std::string("by 64 bytes"));
  const auto published = publisher_.publish("range", range);
  auto [one, other] = DescriptorSocket::pair();
  publisher_.serve(std::move(one));
  const auto attached = AttachedRange::attach(machine.driver(), std::move(other), "range", {}, soon());
  EXPECT_EQ(bytes_at(attached.range(), 0, 11), "by 64 bytes");
}

TEST_F(SharedRange, IsAttachedAsAWholeOrNotAtAll) {
  auto range = new_range(3);
  const auto published = publisher_.publish("range", range);
  const auto alive = machine_.alive();
  const std::size_t open = open_descriptors();
  int failures = 0;
  for (const auto entry :
       {EntryPoint::cuMemImportFromShareableHandle, EntryPoint::cuMemAddressReserve, EntryPoint::cuMemMap,
        EntryPoint::cuMemSetAccess, EntryPoint::cuDeviceGetUuid, EntryPoint::cuMemGetAllocationGranularity}) {
    for (std::uint64_t call = 1; call <= 3; ++call) {
      machine_.faults().clear();
      machine_.fail(entry, call, abi::CUDA_ERROR_UNKNOWN);
      const bool attached = try_attach().has_value();
      failures += attached ? 0 : 1;
      EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    }
  }
  EXPECT_GE(failures, 10);
  machine_.faults().clear();
  EXPECT_TRUE(becomes_true([&] { return publisher_.connected() == 0; })) << "no lease is left";
  EXPECT_EQ(open_descriptors(), open);
  EXPECT_TRUE(try_attach());
}

TEST_F(SharedRange, IsPinnedAsLongAsItIsPublished) {
  auto range = new_range(2);
  {
    auto published = publisher_.publish("range", range);
    try {
      range.unmap(0, 2_MiB);
      ADD_FAILURE() << "it was unmapped";
    } catch (const InvalidUse& error) {
      EXPECT_NE(std::string(error.what()).find("published as 'range'"), std::string::npos) << error.what();
    }
    published.withdraw(soon());
    EXPECT_NO_THROW(range.unmap(0, 2_MiB));
    refusal_of(ErrorKind::invalid_use, [&] { return try_attach(); });
  }
  {
    const auto published = publisher_.publish("range", range);
    EXPECT_THROW(range.truncate(0), InvalidUse);
  }
  EXPECT_NO_THROW(range.truncate(0)) << "the destructor withdraws";
}

TEST_F(SharedRange, WithdrawingNamesThoseWhoAreAttachedAndWaitsForThem) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach();
  EXPECT_FALSE(attached.poll());
  const auto failure = refusal_of(ErrorKind::timed_out, [&] { return published.try_withdraw(Deadline::in(20ms)); });
  EXPECT_NE(failure.message().find("process " + std::to_string(::getpid())), std::string::npos) << failure.message();
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach(); });
  EXPECT_THROW(range.truncate(0), InvalidUse) << "still pinned";
  EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
  EXPECT_EQ(attached.poll(), RangeNews{.withdrawn = Withdrawal::ended}) << "it stays so";
  const std::jthread detaching([&] { attached.detach(); });
  EXPECT_TRUE(published.try_withdraw(soon()));
  EXPECT_NO_THROW(range.truncate(0));
}

TEST_F(SharedRange, SleepAndReplacementAreAnnouncedAndTheNextGenerationFollows) {
  auto range = new_range(1);
  for (const auto why : {Withdrawal::sleep, Withdrawal::replaced}) {
    auto published = publisher_.publish("range", range);
    auto attached = attach();
    EXPECT_EQ(attached.generation(), published.generation());
    EXPECT_EQ(published.generation(), why == Withdrawal::sleep ? 1U : 2U);
    std::jthread following([&] {
      EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = why});
      attached.detach();
    });
    published.withdraw(soon(), why);
    following.join();
    static_cast<void>(range.replace(0, range.source()->acquire({.handle_types = descriptors}, 2_MiB)));
  }
}

TEST_F(SharedRange, BytesOutliveThePublicationAndThePublisher) {
  std::optional<AttachedRange> attached;
  {
    auto range = new_range(1);
    copy_to_device(range, 0, std::string("they stay"));
    const auto published = publisher_.publish("range", range);
    attached = attach();
  }
  EXPECT_EQ(attached->wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
  EXPECT_EQ(bytes_at(attached->range(), 0, 9), "they stay");
  { const auto ended = std::move(publisher_); }
  EXPECT_TRUE(becomes_true([&] { return attached->poll().publisher_gone; }));
  EXPECT_EQ(attached->descriptor(), -1);
  EXPECT_EQ(bytes_at(attached->range(), 0, 9), "they stay");
  EXPECT_NO_THROW(attached->detach());
  EXPECT_EQ(machine_.alive(), (Alive{}));
}

TEST_F(SharedRange, GrowthIsFollowedAtTheSamePointer) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 16_MiB});
  const DeviceAddress address = attached.address();
  EXPECT_EQ(attached.follow(soon()), 2_MiB) << "there is nothing";
  range.append(2_MiB + 3);
  copy_to_device(range, 2_MiB, std::string("the new part"));
  EXPECT_FALSE(attached.poll()) << "it is not offered yet";
  published.update(range);
  EXPECT_EQ(published.size(), 4_MiB + 3);
  EXPECT_EQ(attached.wait(soon()), RangeNews{.grown = true});
  EXPECT_EQ(attached.size(), 2_MiB);
  EXPECT_EQ(attached.follow(soon()), 4_MiB + 3);
  EXPECT_EQ(attached.address(), address);
  EXPECT_EQ(machine_.rights(DeviceAddress(address.value + 4_MiB), device0), AccessRights::read);
  EXPECT_EQ(bytes_at(attached.range(), 2_MiB, 12), "the new part");
  EXPECT_TRUE(is_attached(published, 3));
  range.append(1_MiB);  // what the last chunk had left: no new one
  published.update(range);
  EXPECT_EQ(attached.wait(soon()), RangeNews{.grown = true});
  EXPECT_EQ(attached.follow(soon()), 5_MiB + 3);
  EXPECT_FALSE(attached.poll());
}

TEST_F(SharedRange, GrowthThatCannotBeFollowedLeavesWhatWasThere) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 16_MiB});
  range.append(4_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  const auto alive = machine_.alive();
  // Undoing waits for nothing: not for a graph either that may use what is there already.
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  abi::CUstream stream = nullptr;
  abi::CUgraph graph = nullptr;
  driver::Interface& api = machine_.driver().interface();
  ASSERT_EQ(api.cuStreamCreate(&stream, abi::CU_STREAM_NON_BLOCKING), abi::CUDA_SUCCESS);
  ASSERT_EQ(api.cuStreamBeginCapture(stream, abi::CU_STREAM_CAPTURE_MODE_RELAXED), abi::CUDA_SUCCESS);
  const auto capture = attached.used_on(stream);
  ASSERT_TRUE(capture);
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), abi::CUDA_SUCCESS);
  for (const auto& [entry, call] :
       std::vector<std::pair<EntryPoint, std::uint64_t>>{{EntryPoint::cuMemImportFromShareableHandle, 1},
                                                         {EntryPoint::cuMemImportFromShareableHandle, 2},
                                                         {EntryPoint::cuMemMap, 1},
                                                         {EntryPoint::cuMemMap, 2},
                                                         {EntryPoint::cuMemSetAccess, 1}}) {
    machine_.faults().clear();
    machine_.fail(entry, call, abi::CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(attached.try_follow(soon()));
    EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    EXPECT_EQ(attached.size(), 2_MiB);
    EXPECT_EQ(attached.range().mapped_bytes(), 2_MiB);
  }
  machine_.faults().clear();
  ASSERT_EQ(api.cuGraphDestroy(graph), abi::CUDA_SUCCESS);
  attached.uses().graph_gone(*capture);
  EXPECT_EQ(attached.follow(soon()), 6_MiB);
}

TEST_F(SharedRange, SoDoesGrowthWithHoles) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 16_MiB, .device_wait = 0ms});
  range.map(4_MiB, 2_MiB);
  range.map(8_MiB, 2_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  const auto alive = machine_.alive();
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  driver::Interface& api = machine_.driver().interface();
  abi::CUstream stream = nullptr;
  abi::CUgraph graph = nullptr;
  ASSERT_EQ(api.cuStreamCreate(&stream, abi::CU_STREAM_NON_BLOCKING), abi::CUDA_SUCCESS);
  ASSERT_EQ(api.cuStreamBeginCapture(stream, abi::CU_STREAM_CAPTURE_MODE_RELAXED), abi::CUDA_SUCCESS);
  const auto capture = attached.used_on(stream);  // whose graph may run at any time: waiting would be refused
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), abi::CUDA_SUCCESS);
  for (const auto& [entry, call] : std::vector<std::pair<EntryPoint, std::uint64_t>>{
           {EntryPoint::cuMemMap, 2}, {EntryPoint::cuMemSetAccess, 1}, {EntryPoint::cuMemSetAccess, 2}}) {
    machine_.faults().clear();
    machine_.fail(entry, call, abi::CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(attached.try_follow(soon()));
    EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    EXPECT_EQ(attached.range().mapped_bytes(), 2_MiB);
  }
  machine_.faults().clear();
  EXPECT_EQ(attached.follow(soon()), 10_MiB);
  ASSERT_EQ(api.cuGraphDestroy(graph), abi::CUDA_SUCCESS);
  attached.uses().graph_gone(*capture);
}

TEST_F(SharedRange, GrowthBeyondTheAddressesTellsWhatWouldBeNeeded) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach();
  // What lies behind is taken.
  const auto neighbour =
      AddressReservation::create(machine_.driver(), 2_MiB, 0, DeviceAddress(attached.address().value + 2_MiB));
  range.append(2_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  const auto failure = refusal_of(ErrorKind::out_of_address_space, [&] { return attached.try_follow(soon()); });
  EXPECT_NE(failure.way_out.find(std::to_string(4_MiB)), std::string::npos) << failure.message();
  EXPECT_EQ(attached.size(), 2_MiB);
  EXPECT_EQ(attach({.capacity = 4_MiB}).size(), 4_MiB);
}

TEST_F(SharedRange, AChunkAcrossTheEndOfTheAddressesTellsWhatWouldBeNeeded) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 4_MiB});
  range.map(2_MiB, 4_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  const auto failure = refusal_of(ErrorKind::out_of_address_space, [&] { return attached.try_follow(soon()); });
  EXPECT_NE(failure.way_out.find(std::to_string(6_MiB)), std::string::npos) << failure.message();
  EXPECT_EQ(attached.size(), 2_MiB);
  EXPECT_EQ(attach({.capacity = 6_MiB}).size(), 6_MiB);
}

TEST_F(SharedRange, UpdatesOfWhatIsNotFollowedAreRefused) {
  auto range = new_range(1);
  auto other = new_range(1);
  auto published = publisher_.publish("range", range);
  auto part = publisher_.publish("part", range, {.bytes = 2_MiB});
  EXPECT_THROW(published.update(other), InvalidUse);
  EXPECT_THROW(part.update(range), InvalidUse);
  EXPECT_NO_THROW(published.update(range));
  published.withdraw(soon());
  try {
    published.update(range);
    FAIL() << "did not throw";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.rule(), "It is withdrawn") << error.what();
  }
}

TEST_F(SharedRange, StrangersAreToldWhatIsWrongAndDropped) {
  auto range = new_range(1);
  const auto published = publisher_.publish("range", range);
  const auto attach_bytes = encode(AttachRequest{"range", AccessRights::read, Locality::here()});
  const auto fetch_bytes = encode(FetchRequest{0});
  const std::vector<int> a_descriptor{0};
  const std::vector<std::byte> nonsense(7, std::byte{0xee});
  const auto answer_to = [&](const MessageView& message) {
    auto peer = stranger();
    return peer.try_ask(message, soon());
  };
  for (const MessageView& wrong :
       {MessageView{.kind = attach_message, .bytes = nonsense},
        MessageView{.kind = attach_message, .bytes = attach_bytes, .descriptors = a_descriptor},
        MessageView{.kind = fetch_message, .bytes = fetch_bytes},
        MessageView{.kind = mapped_message, .bytes = fetch_bytes}, MessageView{.kind = first_free_kind}})
    refusal_of(ErrorKind::protocol_violation, [&] { return answer_to(wrong); });
  EXPECT_TRUE(answer_to({.kind = attach_message, .bytes = attach_bytes}));
  auto peer = stranger();
  EXPECT_TRUE(peer.try_ask({.kind = attach_message, .bytes = attach_bytes}, soon()));
  EXPECT_TRUE(peer.try_ask({.kind = fetch_message, .bytes = fetch_bytes}, soon()));
  refusal_of(ErrorKind::protocol_violation,
             [&] { return peer.try_ask({.kind = attach_message, .bytes = attach_bytes}, soon()); });
  EXPECT_TRUE(becomes_true([&] { return publisher_.connected() == 0; }));
  EXPECT_TRUE(try_attach());
}

TEST_F(SharedRange, OneWhoTakesNothingHoldsUpNobody) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto deaf = stranger();
  ASSERT_TRUE(deaf.try_ask(
      {.kind = attach_message, .bytes = encode(AttachRequest{"range", AccessRights::read, Locality::here()})}, soon()));
  for (int update = 0; update < 2000; ++update) {
    range.append(1);
    published.update(range);
  }
  const auto attached = attach();
  EXPECT_EQ(attached.size(), 2_MiB + 2000);
  EXPECT_EQ(publisher_.connected(), 2U);
}

TEST_F(SharedRange, WhoSaysNothingIsDropped) {
  publisher_ = RangePublisher::unconnected({.first_request = 20ms});
  auto silent = stranger();
  const auto told = refusal_of(ErrorKind::timed_out, [&] { return silent.try_receive(soon()); });
  EXPECT_NE(told.message().find("nothing was asked for within 20 ms"), std::string::npos) << told.message();
  EXPECT_TRUE(becomes_true([&] { return publisher_.connected() == 0; }));
}

TEST_F(SharedRange, NoMoreAreAttachedThanIsAllowed) {
  publisher_ = RangePublisher::unconnected({.most_attached = 2});
  auto range = new_range(1);
  const auto published = publisher_.publish("range", range);
  auto one = attach();
  const auto two = attach();
  refusal_of(ErrorKind::not_permitted, [&] { return try_attach(); });
  one.detach();
  EXPECT_TRUE(becomes_true([&] { return published.attached().size() == 1; }));
  EXPECT_TRUE(try_attach());
}

// A publisher that answers what it should not.
class FalsePublisher : public SharedRange {
 protected:
  struct Answer {
    MessageKind kind = 0;
    std::vector<std::byte> bytes{};
    std::vector<int> descriptors{};
  };

  // "attached", or what it was refused as.
  std::string outcome_of(const std::vector<Answer>& answers) {
    auto [one, other] = DescriptorSocket::pair();
    std::jthread publisher([&, socket = std::move(one)]() mutable {
      for (const auto& [kind, bytes, beside] : answers) {
        const auto request = socket.try_receive(soon());
        if (!request) return;
        static_cast<void>(socket.try_reply(*request, {.kind = kind, .bytes = bytes, .descriptors = beside}, soon()));
      }
      static_cast<void>(socket.try_receive(Deadline::in(10ms)));
    });
    const auto alive = machine_.alive();
    const auto attached = AttachedRange::try_attach(machine_.driver(), std::move(other), "range", {}, soon());
    if (attached) return "attached";
    EXPECT_EQ(machine_.alive(), alive);
    return std::string(to_string(attached.failure().kind));
  }

  Answer terms(std::uint32_t chunks, AccessRights rights = AccessRights::read) const {
    const Standing standing{
        .publication = 5, .generation = 1, .bytes = chunks * 2_MiB, .extent = chunks * 2_MiB, .chunks = chunks};
    return {terms_message, encode(Terms{standing, rights})};
  }
  // All with the same memory.
  Answer table(const ChunkTable& content) const {
    return {chunks_message, encode(content), std::vector<int>(content.chunks.size(), handle_.descriptor())};
  }
  static ChunkFacts chunk(std::uint64_t offset, std::uint64_t bytes = one_chunk) {
    return {.offset = offset, .bytes = bytes};
  }

  MappedRange range_ = new_range(1);
  ShareableHandle handle_ =
      ShareableHandle::export_from(range_.memory_at(0).memory(), HandleType::posix_file_descriptor);
  const std::string violation_{to_string(ErrorKind::protocol_violation)};
};

TEST_F(FalsePublisher, IsBelievedWhereAllIsInOrder) {
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 5, .chunks = {chunk(0)}})}), "attached");
  EXPECT_EQ(outcome_of({terms(2), table({.publication = 5, .chunks = {chunk(0)}}),
                        table({.publication = 5, .first = 1, .chunks = {chunk(2_MiB)}})}),
            "attached");
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 5, .chunks = {chunk(0), chunk(2_MiB)}})}), "attached")
      << "what has been appended in the meantime";
}

TEST_F(FalsePublisher, IsAProtocolViolationWhereItSpeaksOtherwise) {
  EXPECT_EQ(outcome_of({{first_free_kind}}), violation_);
  EXPECT_EQ(outcome_of({{terms_message}}), violation_);
  EXPECT_EQ(outcome_of({terms(1, AccessRights::read_write)}), violation_) << "more than was asked for";
  EXPECT_EQ(outcome_of({terms(0)}), violation_);
  // Chunks are asked for at the same time.
  EXPECT_EQ(outcome_of({terms(0), table({.publication = 5, .chunks = {chunk(0)}})}), violation_);
  EXPECT_EQ(outcome_of({terms(1), {terms_message}}), violation_);
  EXPECT_EQ(outcome_of({terms(1), {chunks_message, std::vector<std::byte>(5)}}), violation_);
  EXPECT_EQ(outcome_of({terms(1)}), to_string(ErrorKind::peer_gone));
}

TEST_F(FalsePublisher, IsAProtocolViolationWhereItsChunksAreNotThoseAskedFor) {
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 6, .chunks = {chunk(0)}})}), violation_);
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 5, .first = 1, .chunks = {chunk(0)}})}), violation_);
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 5})}), violation_) << "none";
  EXPECT_EQ(outcome_of({terms(1), table({.publication = 5, .chunks = {chunk(2_MiB)}})}), violation_)
      << "behind the end";
  EXPECT_EQ(outcome_of({terms(2), table({.publication = 5, .chunks = {chunk(0)}}),
                        table({.publication = 5, .first = 1, .chunks = {chunk(0)}})}),
            violation_)
      << "over another";
  EXPECT_EQ(outcome_of({terms(2), table({.publication = 5, .chunks = {chunk(1_MiB), chunk(0)}})}), violation_)
      << "over another, which comes first";
  EXPECT_EQ(outcome_of({terms(2), table({.publication = 5, .chunks = {chunk(2_MiB), chunk(0)}})}), "attached")
      << "in the order in which they were published";
}

TEST_F(FalsePublisher, WhatComesBesideTheTableHasToBeWhatItSays) {
  Answer good = table({.publication = 5, .chunks = {chunk(0)}});
  const auto with = [&](const std::vector<int>& beside) {
    Answer changed = good;
    changed.descriptors = beside;
    return outcome_of({terms(1), changed});
  };
  EXPECT_EQ(with({handle_.descriptor()}), "attached");
  EXPECT_EQ(with({}), violation_);
  EXPECT_EQ(with({handle_.descriptor(), handle_.descriptor()}), violation_);
  const UniqueDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(with({null.get()}), to_string(ErrorKind::invalid_use));
  auto [one, other] = DescriptorSocket::pair();
  EXPECT_EQ(with({one.descriptor()}), to_string(ErrorKind::invalid_use));
  EXPECT_NE(outcome_of({terms(2), table({.publication = 5, .chunks = {chunk(0, 4_MiB)}})}), "attached")
      << "the memory has another size";
  ChunkFacts by_fabric = chunk(0);
  by_fabric.type = HandleType::fabric;
  good.bytes = encode(ChunkTable{.publication = 5, .chunks = {by_fabric}});
  EXPECT_EQ(with({}), to_string(ErrorKind::not_supported)) << "there are no fabric handles here";
}

TEST_F(SharedRange, ChunksOfWhatIsBeingWithdrawnAreRefused) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto peer = stranger();
  const auto request = encode(AttachRequest{"range", AccessRights::read, Locality::here()});
  EXPECT_TRUE(peer.try_ask({.kind = attach_message, .bytes = request}, soon()));
  EXPECT_FALSE(published.try_withdraw(Deadline::in(1ms)));
  const auto fetch = encode(FetchRequest{0});
  refusal_of(ErrorKind::invalid_use, [&] { return peer.try_ask({.kind = fetch_message, .bytes = fetch}, soon()); });
  EXPECT_FALSE(published.try_withdraw(Deadline::in(20ms))) << "it may have some of them";
  peer.close();
  EXPECT_TRUE(published.try_withdraw(soon()));
}

TEST_F(SharedRange, GrowthThatIsWithdrawnIsNotFollowedAndWhatIsMappedStaysAttached) {
  auto range = new_range(1);
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 16_MiB});
  range.append(2_MiB);
  published.update(range);
  EXPECT_FALSE(published.try_withdraw(Deadline::in(1ms)));
  EXPECT_EQ(attached.wait(soon()).grown, true);
  const auto refused = refusal_of(ErrorKind::invalid_use, [&] { return attached.try_follow(soon()); });
  EXPECT_NE(refused.message().find("detach"), std::string::npos) << refused.message();
  EXPECT_EQ(refused.message().find("Publish"), std::string::npos) << "that is for the other one: " << refused.message();
  EXPECT_FALSE(published.try_withdraw(Deadline::in(20ms)));
  EXPECT_EQ(published.attached().size(), 1U);
  attached.detach();
  EXPECT_TRUE(published.try_withdraw(soon()));
}

TEST_F(SharedRange, APublisherThatListensIsFoundByItsAddress) {
  const tests::TemporaryDirectory directory;
  const auto address = SocketAddress::at_path(directory.path("private/socket"));
  auto range = new_range(1);
  AttachOptions patient{.wait_for_publisher = true};
  {
    const auto failure = refusal_of(ErrorKind::timed_out, [&] {
      return AttachedRange::try_attach(machine_.driver(), address, "range", patient, Deadline::in(20ms));
    });
    refusal_of(ErrorKind::peer_gone,
               [&] { return AttachedRange::try_attach(machine_.driver(), address, "range", {}, soon()); });
  }
  RangePublisherOptions options;
  options.listener.connection.token = "secret";
  auto listening = RangePublisher::listen(address, options, soon());
  patient.connection.token = "guess";
  refusal_of(ErrorKind::not_permitted,
             [&] { return AttachedRange::try_attach(machine_.driver(), address, "range", patient, soon()); });
  patient.connection.token = "secret";
  refusal_of(ErrorKind::timed_out, [&] {
    return AttachedRange::try_attach(machine_.driver(), address, "range", patient, Deadline::in(50ms));
  });
  const auto published = listening.publish("range", range);
  EXPECT_TRUE(AttachedRange::try_attach(machine_.driver(), address, "range", patient, soon()));
}

// By whatever inner call it was found: the failure names what the user called, and the range.
TEST_F(SharedRange, FailuresNameTheCallThatTheUserMade) {
  auto range = new_range(2);
  auto published = publisher_.publish("range", range);
  const auto absent = refusal_of(ErrorKind::invalid_use, [&] { return try_attach({}, "other"); });
  EXPECT_EQ(absent.call, "AttachedRange::attach") << absent.message();
  EXPECT_NE(absent.arguments.find("'other'"), std::string::npos) << absent.message();
  const auto nobody = refusal_of(ErrorKind::peer_gone, [&] {
    return AttachedRange::try_attach(machine_.driver(), SocketAddress::abstract("cuvmm-nobody-listens-here"), "range",
                                     {}, soon());
  });
  EXPECT_EQ(nobody.call, "AttachedRange::attach") << nobody.message();
  EXPECT_NE(nobody.arguments.find("cuvmm-nobody-listens-here"), std::string::npos) << nobody.message();
  auto attached = attach();
  try {
    static_cast<void>(attached.wait(Deadline::in(1ms)));
    ADD_FAILURE() << "there was news";
  } catch (const TimedOut& error) {
    EXPECT_EQ(error.call(), "AttachedRange::wait") << error.what();
  }
  machine_.fail(EntryPoint::cuMemMap);
  const auto refused = refusal_of(ErrorKind::out_of_device_memory, [&] { return try_attach(); });
  EXPECT_EQ(refused.call, "cuMemMap") << "what a driver has answered stays the driver's: " << refused.message();
  machine_.faults().clear();
  EXPECT_TRUE(try_attach());
}

}  // namespace
}  // namespace cuvmm::sharing
