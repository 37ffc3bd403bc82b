# ruff: noqa: E501 (a table: one query a line)
"""Questions to one small database in the shapes of Spider, of our own: gold, answer, whether right."""

DATABASE = """
create table singer (id integer primary key, name text, country text, age integer, salary real);
create table concert (id integer primary key, title text, year integer, stadium_id integer);
create table stadium (id integer primary key, name text, capacity integer, city text);
create table performs (singer_id integer, concert_id integer);
insert into singer values (1, 'Ada', 'Norway', 31, 1200.5), (2, 'Ben', 'Italy', 25, 800.25),
  (3, 'Cleo', 'Norway', 44, 2100.0), (4, 'Dan', 'Chad', 25, null), (5, 'Eve', 'Italy', 39, 950.75);
insert into stadium values (1, 'North', 5000, 'Oslo'), (2, 'South', 12000, 'Rome'), (3, 'East', 800, 'Oslo');
insert into concert values (1, 'Spring', 2014, 1), (2, 'Summer', 2014, 2), (3, 'Autumn', 2015, 2), (4, 'Winter', 2016, 1);
insert into performs values (1, 1), (2, 1), (3, 2), (1, 2), (5, 3), (1, 3), (3, 4);
"""

QUERIES = [
    ("select count(*) from singer", "select count(id) from singer", True),
    ("select count(*) from singer", "select count(salary) from singer", False),
    ("select name from singer order by age desc", "select name from singer order by age desc, name", True),
    ("select name from singer order by age desc", "select name from singer order by age", False),
    ("select name, age from singer", "select name, age from singer order by name", True),
    ("select name, age from singer", "select age, name from singer", False),
    ("select avg(age), min(age), max(age) from singer where country = 'Italy'", "select sum(age) * 1.0 / count(*), min(age), max(age) from singer where country = 'Italy'", True),
    ("select avg(age) from singer", "select avg(salary) from singer", False),
    ("select distinct country from singer where age > 26", "select country from singer where age > 26 group by country", True),
    ("select distinct country from singer where age > 26", "select country from singer where age > 26", False),
    ("select country, count(*) from singer group by country", "select s.country, count(s.id) from singer s group by 1", True),
    ("select country, count(*) from singer group by country", "select country, count(distinct age) from singer group by country having count(*) > 1", False),
    ("select name from stadium where capacity between 1000 and 6000", "select name from stadium where capacity >= 1000 and capacity <= 6000", True),
    ("select name from stadium where capacity between 1000 and 6000", "select name from stadium where capacity > 6000", False),
    ("select name from stadium where id not in (select stadium_id from concert)", "select s.name from stadium s left join concert c on c.stadium_id = s.id where c.id is null", True),
    ("select name from stadium where id not in (select stadium_id from concert)", "select name from stadium where id in (select stadium_id from concert)", False),
    ("select country from singer where age > 40 intersect select country from singer where age < 35", "select distinct a.country from singer a join singer b on a.country = b.country where a.age > 40 and b.age < 35", True),
    ("select country from singer where age > 40 union select country from singer where age < 30", "select country from singer where age > 40 union all select country from singer where age < 30", True),
    ("select country from singer where age > 30 union select country from singer where age < 30", "select country from singer where age > 30 union all select country from singer where age < 30", False),
    ("select title, year from concert where year >= 2014 and year < 2016", "select title, year from concert where year in (2014, 2015)", True),
    ("select title from concert where year = 2014 or year = 2016", "select title from concert where year = 2014", False),
    ("select s.name, count(*) from performs p join singer s on s.id = p.singer_id group by s.id", "select name, (select count(*) from performs where singer_id = singer.id) from singer where id in (select singer_id from performs)", True),
    ("select s.name, count(*) from performs p join singer s on s.id = p.singer_id group by s.id", "select name, (select count(*) from performs where singer_id = singer.id) from singer", False),
    ("select name from singer where country != 'Norway'", "select name from singer where not country = 'Norway'", True),
    ("select name from singer where salary is null", "select name from singer where salary = null", False),
    ("select max(capacity), avg(capacity) from stadium", "select max(capacity), sum(capacity) / 3.0 from stadium", True),
    ("select max(capacity), avg(capacity) from stadium", "select max(capacity), sum(capacity) / 3 from stadium", False),
    ("select city, sum(capacity) from stadium group by city order by sum(capacity) desc", "select city, sum(capacity) t from stadium group by city order by t desc", True),
    ("select name from singer where name like '%e%'", "select name from singer where instr(name, 'e') > 0 or instr(name, 'E') > 0", True),
    ("select name from singer where name like 'E%'", "select name from singer where name like '%a%'", False),
    ("select year from concert group by year order by count(*) desc limit 1", "select year from concert group by year having count(*) = 2", True),
    ("select year from concert group by year order by count(*) desc limit 1", "select max(year) from concert", False),
    ("select count(distinct country) from singer", "select count(*) from (select distinct country from singer)", True),
    ("select count(distinct country) from singer", "select count(country) from singer", False),
    ("select name, salary from singer where salary > 900", "select name, round(salary, 2) from singer where salary > 900", True),
    ("select name, salary from singer where salary > 900", "select name, cast(salary as int) from singer where salary > 900", False),
    ("select t.name from stadium t join concert c on t.id = c.stadium_id where c.year = 2014", "select name from stadium where exists (select 1 from concert where stadium_id = stadium.id and year = 2014)", True),
    ("select name from singer where age > (select avg(age) from singer)", "with a as (select avg(age) m from singer) select name from singer, a where age > m", True),
    ("select name from singer where age > (select avg(age) from singer)", "select name from singer where age > 35", True),
    ("select name from singer where age > (select avg(age) from singer)", "select name from singer where age >= 25", False),
]  # fmt: skip
