"""Chinese explanations of simple machines and buildings: what they consist of, why they work, and a small sum."""

from __future__ import annotations

import random

from benchtext.chain import table, walk, words

SUBJECTS = words(
    """
    水车 风车 灯塔 石桥 钟楼 渡船 磨坊 水井 粮仓 烟囱 马车 秤 水闸 滑轮 织机 陶窑 铁炉 船坞 竹筏 雨伞
    火炉 镜子 日晷 指南针 风筝 鼓 笛子 水渠 温室 地窖 天平
    """
)
PLACES = words(
    """
    北方 南方 山里 海边 河边 城里 村里 岛上 湖边 路旁 草原 沙漠
    """
)
PARTS = words(
    """
    木轮 叶片 石柱 铁轴 绳子 横梁 底座 外壳 杠杆 齿轮 弹簧 铜管 木板 铁链 玻璃 帆布
    """
)
USES = words(
    """
    提水 磨面 照明 过河 报时 运货 储粮 排烟 称重 灌溉 织布 烧陶 取暖 指路 发声 保温
    """
)
CAUSES = words(
    """
    水流推动叶片 风力带动轴心 热空气向上走 重力向下拉 空气会振动 光线被反射 木头能浮在水上 弯曲的石头互相压紧
    磁针总是指向北方 太阳的影子会移动 绳子改变了力的方向 厚墙挡住了冷风
    """
)
EFFECTS = words(
    """
    转得很快 不会倒下 省了很多力气 一直很稳 声音传得很远 里面又干又暖 走得更远 看得很清楚
    """
)

SECTIONS = len(SUBJECTS) * len(PLACES)
_PART = table("zh-part", len(SUBJECTS), len(PARTS))
_SECOND = table("zh-second", SECTIONS, len(PARTS))
_USE = table("zh-use", len(SUBJECTS), len(USES))
_CAUSE = table("zh-cause", SECTIONS, len(CAUSES))
_EFFECT = table("zh-effect", SECTIONS, len(EFFECTS))


def items(rng: random.Random, held_out: bool) -> list[str]:
    """A header and one numbered section per state of a walk."""
    states = walk(rng, SECTIONS, rng.randint(6, 18), held_out)
    number = rng.randint(1, 200)
    written = [f"下面从{_subject(states[0])}开始,说明各种东西的原理。\n\n"]
    for state in states:
        written.append(_section(rng, state, number))
        number += 1
    return written


def _subject(state: int) -> str:
    return f"{PLACES[state % len(PLACES)]}的{SUBJECTS[state % len(SUBJECTS)]}"


def _section(rng: random.Random, state: int, number: int) -> str:
    state %= SECTIONS
    subject = SUBJECTS[state % len(SUBJECTS)]
    part, second = PARTS[_PART[state % len(SUBJECTS)]], PARTS[_SECOND[state]]
    use, cause, effect = USES[_USE[state % len(SUBJECTS)]], CAUSES[_CAUSE[state]], EFFECTS[_EFFECT[state]]
    times, days = rng.randint(3, 29), 2 + number % 8
    made = f"它由{part}和{second}组成,主要用来{use}。"
    why = f"为什么{subject}{effect}?因为{cause}。"
    sums = f"如果每天{use}{times}次,{days}天一共{use}{times * days}次。"
    order = [[made, why, sums], [why, made, sums], [made, sums, why]][number % 3]
    return f"第{number}节 {_subject(state)}\n" + "\n".join(order) + f"\n接下来看{_subject(state + 1)}。\n\n"
