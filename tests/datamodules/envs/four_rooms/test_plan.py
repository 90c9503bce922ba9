import pytest

from datamodules.envs.four_rooms.plan import OUTSIDE, RoomPlan

HALLWAYS = {25: (3, 6), 51: (6, 2), 62: (7, 9), 88: (10, 6)}


def test_the_plan_has_104_cells_and_the_hallways_of_the_literature():
    plan = RoomPlan(2)

    assert len(plan.cells) == 104
    assert {number: plan.cells[number] for number in HALLWAYS} == HALLWAYS
    assert {cell for cell, room in enumerate(plan.room_of) if room == OUTSIDE} == set(HALLWAYS)
    assert plan.doorways == [[-1, 25, 51, -1], [-1, -1, 62, 25], [51, 88, -1, -1], [62, -1, -1, 88]]


@pytest.mark.parametrize("rooms", [3, 4])
def test_rooms_have_25_cells_and_two_neighbours_share_a_doorway(rooms: int):
    plan = RoomPlan(rooms)

    assert [plan.room_of.count(room) for room in range(rooms**2)] == [25] * rooms**2
    assert plan.room_of.count(OUTSIDE) == 2 * rooms * (rooms - 1)
    for room in range(rooms**2 - 1):
        right, down = plan.doorways[room][1:3]
        assert right == OUTSIDE or right == plan.doorways[room + 1][3]
        assert down == OUTSIDE or down == plan.doorways[room + rooms][0]


@pytest.mark.parametrize("rooms", [2, 4])
@pytest.mark.parametrize("move", range(4))
def test_a_path_leads_to_the_doorway_of_the_room_without_leaving_it(rooms: int, move: int):
    plan = RoomPlan(rooms)
    path = plan.path(move).tolist()

    for start in range(len(path)):
        room, cell = plan.room_towards(start, move), start
        assert (path[start] == OUTSIDE) == (plan.doorways[room][move] == OUTSIDE)
        for _ in range(11 * (path[start] != OUTSIDE)):
            cell = plan.neighbour(cell, path[cell])
            if cell == plan.doorways[room][move]:
                break
            assert plan.room_of[cell] == room
        assert path[start] == OUTSIDE or cell == plan.doorways[room][move]


def test_a_doorway_leads_on_in_the_direction_or_through_the_room_right_or_below():
    plan = RoomPlan(2)

    assert [plan.room_towards(25, move) for move in range(4)] == [1, 1, 1, 0]
    assert [plan.room_towards(51, move) for move in range(4)] == [0, 2, 2, 2]
